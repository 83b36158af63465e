"""The inputs contract: the inputs that a workflow declares, and the check of a start's input against them.

Admission checks it; a run never does (specification, *Workflow: Inputs*). It does not depend on the workflow's type.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from callboard.bus.events import Problem
from callboard.languages.parts import Maybe, Number, Part, one_of, variant_by
from callboard.languages.problems import VARIANT, Complaint, Tree, format_location, hint_at, kind_of
from callboard.languages.workflow.checks import same
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

MEANINGFUL = ("rules", "context", "dryRun")
"""Inputs with a meaning in every workflow (specification, *Workflow: Inputs*), declared or not."""

TYPES = ("string", "number", "boolean", "string[]")


class _Declared(Part):
    description: Maybe[str] = None
    required: bool = False

    @model_validator(mode="after")
    def _either_required_or_default(self) -> "_Declared":
        if self.required and "default" in self.model_fields_set:
            raise Complaint("SCHEMA", "is required and has a default; the default could never be used", "one of both")
        return self


class StringInput(_Declared):
    type: Annotated[Literal["string"], one_of(*TYPES)]
    default: Maybe[str] = None
    enum: Maybe[Annotated[list[str], Field(min_length=1)]] = None


class NumberInput(_Declared):
    type: Annotated[Literal["number"], one_of(*TYPES)]
    default: Maybe[Number] = None
    enum: Maybe[Annotated[list[Number], Field(min_length=1)]] = None


class BooleanInput(_Declared):
    type: Annotated[Literal["boolean"], one_of(*TYPES)]
    default: Maybe[bool] = None
    enum: Maybe[Annotated[list[bool], Field(min_length=1)]] = None


class StringsInput(_Declared):
    type: Annotated[Literal["string[]"], one_of(*TYPES)]
    default: Maybe[list[str]] = None
    enum: Maybe[Annotated[list[list[str]], Field(min_length=1)]] = None


InputField = Annotated[
    Annotated[StringInput, Tag(f"{VARIANT}string")]
    | Annotated[NumberInput, Tag(f"{VARIANT}number")]
    | Annotated[BooleanInput, Tag(f"{VARIANT}boolean")]
    | Annotated[StringsInput, Tag(f"{VARIANT}string[]")],
    Discriminator(variant_by("type", TYPES, lambda _raw: "string")),
]
"""A declared input. An unknown type is read as a string input, whose ``type`` field then reports the allowed types."""


def resolve_input(declared: Mapping[str, InputField] | None, given: JSON) -> dict[str, Any] | list[Problem]:
    """Check a start's input against the declaration and fill in defaults; return all problems, with the code ``INPUT``.

    Undeclared keys pass. Without a declaration any object passes; null counts as the empty object.
    """
    given = {} if given is None else given
    if not isinstance(given, dict):
        return [Problem("INPUT", f"input is {kind_of(given)}", "input", expected="an object")]
    resolved: dict[str, Any] = dict(given)
    tree = Tree(given)
    problems: list[Problem] = []
    for name, field in (declared or {}).items():
        value = given.get(name)
        if value is None:
            resolved.pop(name, None)
            if field.default is not None:
                resolved[name] = field.default
            elif field.required:
                message = "is required but was not provided"
                problems.append(tree.problem("INPUT", message, ("input", name), expected=_describe_expected(field)))
        elif not _fits(field.type, value):
            message = f"must be {_kind(field.type)}, but is {kind_of(value)}"
            problems.append(tree.problem("INPUT", message, ("input", name), expected=_describe_expected(field)))
        elif field.enum is not None and not any(same(value, allowed, Steps(sys.maxsize)) for allowed in field.enum):
            problems.append(
                tree.problem("INPUT", "is not allowed", ("input", name), expected=_describe_expected(field))
            )
    return problems or resolved


def unknown_inputs(declared: Mapping[str, InputField] | None, given: Mapping[str, JSON]) -> list[Problem]:
    """Warn of undeclared values of a workflow that declares inputs: they pass, but are probably misspelt."""
    known = {*(declared or {}), *MEANINGFUL}
    return [
        Problem(
            "UNKNOWN_INPUT",
            f"nothing declares this input{hint_at(name, known)}",
            format_location(("input", name)),
            expected=f"one of {', '.join(declared or ())}",
            severity="warning",
        )
        for name in given
        if declared and name not in known
    ]


def _fits(kind: str, value: JSON) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole or (isinstance(value, float) and abs(value) < float("inf"))
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _kind(kind: str) -> str:
    return "a list of strings" if kind == "string[]" else f"a {kind}"


def _describe_expected(field: InputField) -> str:
    if field.enum is None:
        return _kind(field.type)
    return f"one of {', '.join(str(allowed) for allowed in field.enum)}"
