"""What is wrong with a document, and where: places in its text, and pydantic's errors told as `Problem` records.

A reader (`callboard.languages.yaml12`, `callboard.languages.json_text`) gives a `Tree`: the plain value and the line
and column of every member and item in it. A *location* is the way to a value from the document's root, as a tuple of
member names and 0-based item numbers; people read it as ``nodes.gather.rules[0]``.
"""

import re
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from itertools import islice
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.events import Problem
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps, TooManySteps

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

Location = tuple[str | int, ...]

VARIANT = "variant "
"""Begins the name of every union tag of our models, so that tags can be told from members in pydantic's locations."""

FIELDS_LISTED_MAX = 24
"""How many known fields a problem about an unknown one lists at most."""

NAMES_COMPARED_MAX = 200
NAME_COMPARED_CHARS_MAX = 60
"""How many known names are looked through for the one that was meant, and how long it and they may be."""

MISSPELLED_MIN = 0.6
"""How near an unknown name has to be to a missing one, from 0 to 1."""

HINT_STEPS_MAX = 4_000
"""How many names may be compared for all problems of a document."""

_PLAIN_MEMBER = re.compile(r"[^\s.\[\]\"]+")
_OWN_CODE = re.compile(r"[A-Z][A-Z0-9_]+")


class Place(Struct, frozen=True):
    """A position in a text, both numbers 1-based."""

    line: int
    column: int


class Tree(Struct, frozen=True):
    """A document as its reader found it: the plain JSON value, and where each part of it stands."""

    value: JSON
    places: Mapping[Location, Place] = field(default_factory=dict[Location, Place])

    def place(self, location: Location) -> Place | None:
        """Return where a value stands, or the nearest thing around it that stands anywhere."""
        for length in range(len(location), -1, -1):
            if found := self.places.get(location[:length]):
                return found
        return None

    def problem(
        self,
        code: str,
        message: str,
        location: Location = (),
        *,
        expected: str | None = None,
        warning: bool = False,
    ) -> Problem:
        """Make a problem of something at a location of this document."""
        place = self.place(location)
        return Problem(
            code=code,
            message=message,
            where=format_location(location),
            line=place.line if place else None,
            column=place.column if place else None,
            expected=expected,
            severity="warning" if warning else "error",
        )


def format_location(location: Location) -> str:
    """Write a location the way people read it: ``nodes.gather.rules[0]``, odd names quoted: ``nodes["a b"]``."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_MEMBER.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that someone probably meant; None if none is near, or it would take too long to say."""
    if len(name) > NAME_COMPARED_CHARS_MAX:
        return None
    bound = _HINTS.get(None)
    if bound is not None and bound.left < 0:
        return None
    candidates = list(islice((one for one in known if len(one) <= NAME_COMPARED_CHARS_MAX), NAMES_COMPARED_MAX))
    try:
        if bound is not None:
            bound.take(len(candidates))
    except TooManySteps:
        return None
    return next(iter(get_close_matches(name, candidates, n=1, cutoff=0.75)), None)


def find_misspelled(name: str, given: Iterable[str]) -> str | None:
    """Return what was given in place of a name that is missing: near enough, or with more or less of it."""
    close = [one for one in given if len(one) <= NAME_COMPARED_CHARS_MAX]
    return next(iter(get_close_matches(name, close[:NAMES_COMPARED_MAX], n=1, cutoff=MISSPELLED_MIN)), None)


def missing(tree: Tree, location: Location, given: Iterable[str], known: Collection[str]) -> Problem:
    """Make the problem of a field that is missing; it shows the unknown one that was probably meant, if any was."""
    meant = find_misspelled(str(location[-1]), (one for one in given if one not in known))
    if meant is None:
        return tree.problem("SCHEMA", "is required", location)
    found = tree.problem(
        "SCHEMA", f"is required; is {meant!r} meant?", (*location[:-1], meant), expected=str(location[-1])
    )
    return replace(found, where=format_location(location))


_HINTS: ContextVar[Steps] = ContextVar("hints")


@contextmanager
def hints_within() -> Generator[None]:
    """Bound what all hints of a block may take together: a document may be wrong in thousands of places."""
    token = _HINTS.set(Steps(HINT_STEPS_MAX))
    try:
        yield
    finally:
        _HINTS.reset(token)


def hint_at(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name, which says the known one that was probably meant."""
    meant = did_you_mean(name, known)
    return f", did you mean {meant!r}?" if meant else ""


def kind_of(value: JSON) -> str:
    """Name a JSON value's kind, with its article: ``a string``, ``an object``, ``null``."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


# -- pydantic's errors ------------------------------------------------------------------------------------------------

_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def from_pydantic(
    error: "ValidationError", model: "type[BaseModel]", tree: Tree, below: Location = ()
) -> list[Problem]:
    """Tell a validation error as problems of the document that was validated against ``model``.

    ``below`` is where in the tree the validated value stands. An error type in capitals is taken as the problem's
    code; all others have the code ``SCHEMA``.
    """
    return [_problem_of(detail, model, tree, below) for detail in error.errors(include_url=False)]


def _problem_of(detail: "ErrorDetails", model: "type[BaseModel]", tree: Tree, below: Location) -> Problem:
    location = below + tuple(
        step for step in detail["loc"] if step != "[key]" and not (isinstance(step, str) and step.startswith(VARIANT))
    )
    context: dict[str, Any] = detail.get("ctx", {})
    found = kind_of(detail["input"])
    match detail["type"]:
        case "missing":
            given: Any = detail["input"]
            names = [str(name) for name in given] if isinstance(given, dict) else []
            return missing(tree, location, names, fields_at(model, detail["loc"][:-1]))
        case "extra_forbidden":
            return _unknown_field(tree, location, fields_at(model, detail["loc"][:-1]))
        case "literal_error":
            return tree.problem("SCHEMA", f"{detail['input']!r} is not allowed", location, expected=context["expected"])
        case "string_too_short":
            return tree.problem("SCHEMA", "must not be empty", location, expected="a non-empty string")
        case "too_short":
            return tree.problem("SCHEMA", "must not be empty", location, expected=f"at least {context['min_length']}")
        case "greater_than_equal":
            wanted = f"a whole number of at least {context['ge']}"
            return tree.problem("SCHEMA", f"{detail['input']!r} is too small", location, expected=wanted)
        case kind if kind in _EXPECTED:
            return tree.problem("SCHEMA", f"is {found}", location, expected=_EXPECTED[kind])
        case kind:
            code = kind if _OWN_CODE.fullmatch(kind) else "SCHEMA"
            return tree.problem(code, detail["msg"], location, expected=context.get("expected"))


def _unknown_field(tree: Tree, location: Location, known: list[str]) -> Problem:
    name = str(location[-1])
    listed = f"one of {', '.join(known)}" if 0 < len(known) <= FIELDS_LISTED_MAX else None
    return tree.problem("SCHEMA", f"unknown field {name!r}{hint_at(name, known)}", location, expected=listed)


def fields_at(model: "type[BaseModel]", location: Location) -> list[str]:
    """Return the names of the fields that the object at a location of a model's document may have."""
    annotations: list[Any] = [model]
    for step in location:
        annotations = [deeper for annotation in annotations for deeper in _descend(annotation, step)]
    plain = [alternative for annotation in annotations for alternative, _tag in _alternatives(annotation)]
    return [field.alias or name for one in plain for name, field in _fields(one).items()]


def _descend(annotation: Any, step: str | int) -> list[Any]:
    """Return the annotations one step below: of a field, of a list's items, of a map's values, of a union's variant."""
    if isinstance(step, str) and step.startswith(VARIANT):
        return [alternative for alternative, tag in _alternatives(annotation) if tag in (step, None)]
    below: list[Any] = []
    for alternative, _tag in _alternatives(annotation):
        if get_origin(alternative) in (list, dict):
            below.append(get_args(alternative)[-1])
        below += [field.annotation for name, field in _fields(alternative).items() if step in (name, field.alias)]
    return below


def _alternatives(annotation: Any, tag: str | None = None) -> list[tuple[Any, str | None]]:
    """Take unions and annotations apart: every plain type in it, with the union tag it goes by."""
    origin = get_origin(annotation)
    if origin is Annotated:
        own = next((mark.tag for mark in annotation.__metadata__ if hasattr(mark, "tag")), tag)
        return _alternatives(annotation.__origin__, own)
    if origin in (Union, UnionType):
        return [found for argument in get_args(annotation) for found in _alternatives(argument, tag)]
    return [(annotation, tag)]


def _fields(annotation: Any) -> dict[str, Any]:
    return getattr(annotation, "model_fields", {}) if isinstance(annotation, type) else {}
