"""Start messages: parse a published message into a `StartRun`, or into the list of all its problems."""

import json
import re
from typing import Any, cast

import msgspec
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callboard.bus import events as ev
from callboard.bus.commands import Limits, Policy, StartRun
from callboard.bus.events import Problem
from callboard.bus.subjects import TOKEN_BYTES_MAX, token
from callboard.bus.tracecontext import TraceContext
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.projections.run.attributes import PATH, ROOTS

CONTINUES = "continues"
"""The member of a start message that names the predecessor."""

MODEL_SCRIPTED = "scripted"

NESTING_MAX = 100
"""Maximum nesting of a start message. msgspec and Python fail near 1000 levels, earlier if their stack is deep already.
"""


TAGS_MAX = 32
TAG_NAME_CHARS_MAX = 64
TAG_CHARS_MAX = 256
"""Limits of the tags of a run, and of its attributes: their number, and the lengths of names and values."""

SECONDS_MAX = 100 * 366 * 86_400.0
"""Highest limit of seconds; times that far away cannot always be computed."""

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


_STRICT = ConfigDict(extra="forbid", strict=True, defer_build=True)
"""Validators are built at the first start, not when the process begins: the runs it continues are admitted already."""


class _Definition(BaseModel):
    model_config = _STRICT
    language: str | None = None
    source: str | None = None
    hash: str | None = None
    name: str | None = None


class _Bundle(BaseModel):
    model_config = _STRICT
    source: str
    language: str | None = None
    name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)
    skills: list[Any] = Field(default_factory=list)
    children: list[str] = Field(default_factory=list)


class _Scheduled(BaseModel):
    model_config = _STRICT
    schedule: str
    due: str
    timezone: str = "UTC"


class _Fork(BaseModel):
    model_config = _STRICT
    run: str = Field(min_length=1)
    at: int = Field(ge=1)
    outcome: dict[str, Any] | None = None
    variables: dict[str, Any] = Field(default_factory=dict)
    children: dict[str, "_Fork"] = Field(default_factory=dict)


class _Recording(BaseModel):
    model_config = _STRICT
    run: str = Field(min_length=1)
    tools: dict[str, Policy] = Field(default_factory=dict)
    fresh: bool = False


class _Start(BaseModel):
    """The shape of a start message. People write it, so all problems are reported at once."""

    model_config = _STRICT
    definition: _Definition
    input: Any = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    run_id: str | None = Field(default=None, min_length=1)
    name: str | None = Field(default=None, min_length=1)
    model: str | None = None
    script: dict[str, Any] | None = None
    files: dict[str, str] = Field(default_factory=dict)
    children: dict[str, _Bundle] = Field(default_factory=dict)
    breakpoints: list[str] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] | None = None
    scheduled: _Scheduled | None = None
    by: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    attributes: dict[str, str] = Field(default_factory=dict)
    encryption_key: str | None = Field(default=None, min_length=1)
    fork: _Fork | None = None
    continues: str | None = None
    recording: _Recording | None = None


class Inherited(Struct, frozen=True):
    """What a successor takes over besides the members of its start message."""

    continues: ev.Continues
    parent: ev.Parent | None
    trace: TraceContext | None


class Examined(Struct, frozen=True):
    """The result of checking a start message: its problems, and the start without the invalid members.

    ``start`` is None if the definition is missing or invalid, because nothing else can be checked then. ``run_id`` is
    the one in the message, ``size`` its size in bytes. ``inherited`` is what a successor takes over besides.
    """

    problems: list[Problem]
    start: StartRun | None = None
    run_id: str | None = None
    size: int = 0
    inherited: Inherited | None = None


def read_start(body: bytes) -> StartRun | list[Problem]:
    """Read a start message; return every problem of its shape if it has any."""
    examined = examine(body)
    return examined.problems if examined.problems or examined.start is None else examined.start


def examine(body: bytes) -> Examined:
    """Check a start message."""
    document = decode_start(body)
    return Examined(document) if isinstance(document, list) else examine_object(document, len(body))


def decode_start(body: bytes) -> dict[str, Any] | list[Problem]:
    """Decode a start message as a JSON object, without checking its members."""
    try:
        document = decode_json(body)
    except JSON_ERRORS as error:
        return [_malformed_problem(body, str(error))]
    if not isinstance(document, dict):
        kind = type(document).__name__
        return [Problem(code="start.malformed", message=f"the message is a {kind}", expected="a JSON object")]
    return document


def named_run(document: dict[str, Any] | list[Problem]) -> str | None:
    """Return the run id in a decoded start message, None if it has none. The rest of the message may be invalid."""
    named = document.get("run_id") if isinstance(document, dict) else None
    return named if isinstance(named, str) and named else None


def examine_object(document: dict[str, Any], size: int) -> Examined:
    """Check a decoded and complete start message of ``size`` bytes."""
    run_id = named_run(document)
    problems = too_deep(document)
    if problems:
        return Examined(problems, run_id=run_id)
    if isinstance(places := document.get("breakpoints"), list):
        # A number is a path in its decimal form: steps may be numbered.
        document["breakpoints"] = [str(place) if type(place) is int else place for place in places]
    try:
        _Start.model_validate(document)
    except ValidationError as error:
        problems = [_problem(entry["loc"], entry["type"], entry["msg"]) for entry in error.errors(include_url=False)]
    problems += _check_definition(document.get("definition")) + _check_limits(document.get("limits"))
    problems += [
        problem for member in ("name", "encryption_key") for problem in _check_name(member, document.get(member))
    ]
    problems += _check_tags(document.get("tags")) + check_attributes(document.get("attributes"))
    wrong = {re.split(r"[.\[]", problem.where, maxsplit=1)[0] for problem in problems}
    if "definition" in wrong or "definition" not in document:
        return Examined(problems, run_id=run_id)
    sound = {name: value for name, value in document.items() if name not in wrong}
    return Examined(problems, msgspec.convert(sound, StartRun), run_id, size)


def too_deep(document: dict[str, Any], what: str = "start") -> list[Problem]:
    """Return a problem for each field that is nested too deep for some reader of the run's events."""
    deep: list[Problem] = []
    for name, value in document.items():
        if nests_too_deep(value):
            expected = f"at most {NESTING_MAX} levels"
            deep.append(Problem(code=f"{what}.nesting", message="nested too deep", where=name, expected=expected))
    return deep


def nests_too_deep(value: Any) -> bool:
    """Whether a value nests deeper than `NESTING_MAX` levels."""
    level = [value]
    for _ in range(NESTING_MAX):
        level = [inner for one in level for inner in _members(one)]
    return bool(level)


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _check_definition(definition: Any) -> list[Problem]:
    if not isinstance(definition, dict):
        return []
    given = [name for name in ("source", "hash", "name") if definition.get(name) is not None]
    if len(given) == 1:
        return _check_not_empty(given[0], definition[given[0]])
    message = f"the definition is given by {' and '.join(given)}" if given else "no definition is given"
    expected = "exactly one of source, hash and name"
    return [Problem(code="start.definition", message=message, where="definition", expected=expected)]


def _check_not_empty(member: str, value: Any) -> list[Problem]:
    if value != "":
        return []
    expected = "the text of a definition" if member == "source" else f"the {member} of a registered definition"
    return [Problem("start.definition", f"definition.{member} is empty", f"definition.{member}", expected=expected)]


def _check_name(member: str, name: Any) -> list[Problem]:
    """Refuse a name that would not fit a subject."""
    try:
        token(name if isinstance(name, str) else "")
    except ValueError:
        expected = f"at most {TOKEN_BYTES_MAX} bytes"
        return [Problem(code="start.name", message="the name is too long", where=member, expected=expected)]
    return []


def _check_tags(tags: Any) -> list[Problem]:
    """Refuse tags that could not be searched for or are too long."""
    if not isinstance(tags, dict):
        return []
    tags = cast("dict[str, Any]", tags)
    problems = _check_names("start.tag", "tags", tags)
    for name, value in tags.items():
        if isinstance(value, str) and len(value) > TAG_CHARS_MAX:
            expected = f"at most {TAG_CHARS_MAX} characters"
            problems.append(Problem("start.tag", "the tag is too long", _member("tags", name), expected=expected))
    return problems


def check_attributes(paths: Any) -> list[Problem]:
    """Refuse attributes that could not be searched for or that do not name a place in an input or output."""
    if not isinstance(paths, dict):
        return []
    paths = cast("dict[str, Any]", paths)
    problems = _check_names("start.attribute", "attributes", paths)
    for name, path in paths.items():
        if isinstance(path, str) and (len(path) > TAG_CHARS_MAX or PATH.fullmatch(path) is None):
            expected = f"{', '.join(ROOTS)}, followed by members after dots, at most {TAG_CHARS_MAX} characters"
            message = f"invalid path: {path[:80]!r}"
            problems.append(Problem("start.attribute", message, _member("attributes", name), expected=expected))
    return problems


def _check_names(code: str, member: str, named: dict[str, Any]) -> list[Problem]:
    if len(named) > TAGS_MAX:
        return [Problem(code, f"there are {len(named)} {member}", member, expected=f"at most {TAGS_MAX}")]
    expected = f"letters, digits and _ . - after a letter, at most {TAG_NAME_CHARS_MAX} characters"
    wrong = [name for name in named if not _TAG.fullmatch(name) or len(name) > TAG_NAME_CHARS_MAX]
    message = f"invalid name of {'a tag' if member == 'tags' else 'an attribute'}"
    return [Problem(code, message, _member(member, name), expected=expected) for name in wrong]


def _member(member: str, name: str) -> str:
    return f"{member}.{name[:TAG_NAME_CHARS_MAX]}"


def _check_limits(limits: Any) -> list[Problem]:
    """Refuse unknown limits, limits with invalid values, and limits that limit nothing."""
    if not isinstance(limits, dict):
        return []
    known = Limits.__struct_fields__
    problems: list[Problem] = []
    for name, value in limits.items():
        try:
            msgspec.convert({name: value}, Limits)
        except msgspec.ValidationError as error:
            message = re.sub(r" - at `.*`$", "", str(error)) if name in known else "unknown limit"
            expected = f"one of {', '.join(known)}; limits of a language are options of the start"
            problems.append(Problem("start.limit", message, f"limits.{name}", expected=expected))
    if problems or not limits:
        return problems
    if all(value is None for name, value in limits.items() if name != "then"):
        expected = f"one of {', '.join(name for name in known if name != 'then')}"
        return [Problem("start.limit", "nothing is limited", "limits", expected=expected)]
    if (limits.get("seconds") or 0) > SECONDS_MAX:
        return [
            Problem("start.limit", "longer than 100 years", "limits.seconds", expected=f"at most {SECONDS_MAX:.0f}")
        ]
    return []


def _problem(location: tuple[int | str, ...], kind: str, message: str) -> Problem:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if kind == "extra_forbidden":
        known = _Definition.model_fields if where.startswith("definition.") else _Start.model_fields
        expected = f"one of {', '.join(known)}"
        return Problem(code="start.unknown_field", message="unknown field", where=where, expected=expected)
    code = "start.missing" if kind == "missing" else "start.type"
    return Problem(code=code, message=message, where=where)


def _malformed_problem(body: bytes, complaint: str) -> Problem:
    """Return the problem of a text that is not JSON, at the place that Python's parser reports.

    If Python's parser accepts the text, the place is the byte in ``complaint``.
    """
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        return _problem_at(f"not JSON: {error.msg}", error.lineno, error.colno)
    except UnicodeDecodeError as error:
        return _problem_at(f"not UTF-8: {error.reason}", *_place(body, error.start))
    except RecursionError:
        return Problem(code="start.nesting", message="nested too deep", expected=f"at most {NESTING_MAX} levels")
    except ValueError as error:
        return Problem(code="start.malformed", message=str(error), expected="a JSON object")
    byte = re.search(r"\(byte (\d+)\)", complaint)
    return _problem_at(f"not JSON: {complaint}", *_place(body, int(byte[1]) if byte else 0))


def _problem_at(message: str, line: int, column: int) -> Problem:
    return Problem(code="start.malformed", message=message, line=line, column=column, expected="a JSON object")


def _place(body: bytes, offset: int) -> tuple[int, int]:
    before = body[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1
