"""Start messages: reading what a user published into a `StartRun`, or into the list of everything that is wrong."""

import json
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem

MODEL_SCRIPTED = "scripted"


class _Definition(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    language: str | None = None
    source: str | None = None
    hash: str | None = None
    name: str | None = None


class _Start(BaseModel):
    """The shape of a start message; people write it, so every problem is told at once."""

    model_config = ConfigDict(extra="forbid", strict=True)
    definition: _Definition
    input: Any = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    run_id: str | None = Field(default=None, min_length=1)
    model: str | None = None
    script: dict[str, Any] | None = None
    files: dict[str, str] = Field(default_factory=dict)
    breakpoints: list[str] = Field(default_factory=list)
    options: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    state: dict[str, Any] | None = None


def read_start(body: bytes) -> StartRun | list[Problem]:
    """Read a start message."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return [_malformed(body)]
    if not isinstance(document, dict):
        kind = type(document).__name__
        return [Problem(code="start.malformed", message=f"the message is a {kind}", expected="a JSON object")]
    problems: list[Problem] = []
    try:
        _Start.model_validate(document)
    except ValidationError as error:
        problems = [_problem(entry["loc"], entry["type"], entry["msg"]) for entry in error.errors(include_url=False)]
    problems += _check_definition(document.get("definition"))
    if problems:
        return problems
    return msgspec.convert(document, StartRun)


def _check_definition(definition: Any) -> list[Problem]:
    if not isinstance(definition, dict):
        return []
    given = [name for name in ("source", "hash", "name") if definition.get(name) is not None]
    if len(given) == 1:
        return []
    message = f"the definition is given by {' and '.join(given)}" if given else "no definition is given"
    expected = "exactly one of source, hash and name"
    return [Problem(code="start.definition", message=message, where="definition", expected=expected)]


def _problem(location: tuple[int | str, ...], kind: str, message: str) -> Problem:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    if kind == "extra_forbidden":
        known = _Definition.model_fields if where.startswith("definition.") else _Start.model_fields
        expected = f"one of {', '.join(known)}"
        return Problem(code="start.unknown_field", message="there is no such field", where=where, expected=expected)
    code = "start.missing" if kind == "missing" else "start.type"
    return Problem(code=code, message=message, where=where)


def _malformed(body: bytes) -> Problem:
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        return Problem(
            code="start.malformed",
            message=f"not JSON: {error.msg}",
            line=error.lineno,
            column=error.colno,
            expected="a JSON object",
        )
    except UnicodeDecodeError as error:
        return Problem(code="start.malformed", message=f"not UTF-8: {error.reason}", expected="a JSON object")
    return Problem(code="start.malformed", message="not JSON", expected="a JSON object")
