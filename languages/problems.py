"""Problems of documents, with their places in the text, and the translation of pydantic's errors to `Problem` records.

A reader (`callboard.languages.yaml12`, `callboard.languages.json_text`) returns a `Tree`: the plain value and the line
and column of every member and item in it. A *location* is the path of a value from the document's root, as a tuple of
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

Location = tuple[str | int, ...]

VARIANT = "variant "
"""The prefix of union tags in our models; it distinguishes tags from members in pydantic's locations."""

FIELDS_LISTED_MAX = 24
"""A problem about an unknown field lists the known ones if there are at most this many."""

NAMES_COMPARED_MAX = 200
NAME_COMPARED_CHARS_MAX = 60
"""How many known names are compared with a misspelled one, and how long names may be, in characters."""

MISSPELLED_MIN = 0.6
"""How similar an unknown name must be to a missing one, from 0 to 1."""

HINT_STEPS_MAX = 4_000
"""How many names may be compared for all problems of a document."""

_PLAIN_MEMBER = re.compile(r"[^\s.\[\]\"]+")


class Complaint(ValueError):
    """The error that a validator of a model raises: the code, the message and the expectation of the problem."""

    def __init__(self, code: str, message: str, expected: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.expected = code, message, expected


class TextPosition(Struct, frozen=True):
    """A position in a text, both numbers 1-based."""

    line: int
    column: int


class Tree(Struct, frozen=True):
    """A document: its plain JSON value, and the place of each part in the text."""

    value: JSON
    places: Mapping[Location, TextPosition] = field(default_factory=dict[Location, TextPosition])

    def place(self, location: Location) -> TextPosition | None:
        """Return the place of a value, or of the nearest enclosing value that has one."""
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
        """Return a problem at a location of this document."""
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


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sort problems by their place in the text, errors and warnings together."""
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def format_location(location: Location) -> str:
    """Return a location as text, such as ``nodes.gather.rules[0]``; unusual names are quoted: ``nodes["a b"]``."""
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
    """Return the known name that was probably meant; None if none is similar, or finding it would take too long."""
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
    """Return the given name that is most similar to a missing one; None if none is similar enough."""
    close = [one for one in given if len(one) <= NAME_COMPARED_CHARS_MAX]
    return next(iter(get_close_matches(name, close[:NAMES_COMPARED_MAX], n=1, cutoff=MISSPELLED_MIN)), None)


def missing_field(tree: Tree, location: Location, given: Iterable[str], known: Collection[str]) -> Problem:
    """Return the problem of a missing field; it names the unknown field that was probably meant, if there is one."""
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
    """Limit the steps of all hints in a block together: a document may have thousands of problems."""
    token = _HINTS.set(Steps(HINT_STEPS_MAX))
    try:
        yield
    finally:
        _HINTS.reset(token)


def hint_at(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the known name that was probably meant, or nothing."""
    meant = did_you_mean(name, known)
    return f", did you mean {meant!r}?" if meant else ""


def kind_of(value: JSON) -> str:
    """Return the kind of a JSON value with its article: ``a string``, ``an object``, ``null``."""
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
    """Return a validation error as problems of the document that was validated against ``model``.

    ``below`` is the location of the validated value in the tree. The problem of a `Complaint` has its code; all others
    have the code ``SCHEMA``.
    """
    return [_problem_of(detail, model, tree, below) for detail in error.errors(include_url=False)]


def _problem_of(detail: Mapping[str, Any], model: "type[BaseModel]", tree: Tree, below: Location) -> Problem:
    location = below + tuple(
        step for step in detail["loc"] if step != "[key]" and not (isinstance(step, str) and step.startswith(VARIANT))
    )
    context: dict[str, Any] = detail.get("ctx", {})
    found = kind_of(detail["input"])
    match detail["type"]:
        case "missing":
            given: Any = detail["input"]
            names = [str(name) for name in given] if isinstance(given, dict) else []
            return missing_field(tree, location, names, fields_at(model, detail["loc"][:-1]))
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
        case "value_error" if isinstance(error := context["error"], Complaint):
            return tree.problem(error.code, error.message, location, expected=error.expected)
        case kind if kind in _EXPECTED:
            return tree.problem("SCHEMA", f"is {found}", location, expected=_EXPECTED[kind])
        case _:
            return tree.problem("SCHEMA", detail["msg"], location, expected=context.get("expected"))


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
    """Return the annotations one step deeper: of a field, a list's items, a map's values, or a union's variant."""
    if isinstance(step, str) and step.startswith(VARIANT):
        return [alternative for alternative, tag in _alternatives(annotation) if tag in (step, None)]
    below: list[Any] = []
    for alternative, _tag in _alternatives(annotation):
        if get_origin(alternative) in (list, dict):
            below.append(get_args(alternative)[-1])
        below += [field.annotation for name, field in _fields(alternative).items() if step in (name, field.alias)]
    return below


def _alternatives(annotation: Any, tag: str | None = None) -> list[tuple[Any, str | None]]:
    """Resolve unions and ``Annotated``: return every plain type in an annotation, with its union tag."""
    origin = get_origin(annotation)
    if origin is Annotated:
        own = next((mark.tag for mark in annotation.__metadata__ if hasattr(mark, "tag")), tag)
        return _alternatives(annotation.__origin__, own)
    if origin in (Union, UnionType):
        return [found for argument in get_args(annotation) for found in _alternatives(argument, tag)]
    return [(annotation, tag)]


def _fields(annotation: Any) -> dict[str, Any]:
    return getattr(annotation, "model_fields", {}) if isinstance(annotation, type) else {}
