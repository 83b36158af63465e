"""Deterministic checks of data: required fields and matching values, with the texts of failed checks."""

import sys
from itertools import repeat
from typing import Any

import msgspec
from pydantic import Field, model_validator

from callboard.languages.parts import Maybe, Part, Text
from callboard.languages.problems import Complaint
from callboard.languages.workflow.lookup import Unresolved, resolve_path
from callboard.lib.javascript import regex
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps, TooManySteps

OPERATORS = {"equals": "equals", "in_": "in", "matches": "matches"}
"""The operators of a comparison: the field, and its name in documents."""

STEPS_MAX = 20_000_000
"""How many steps one comparison may take: some tens of seconds."""

SHOWN_CHARS_MAX = 120
"""The greatest length of a value in the text of a failed check."""


class OutputMatch(Part):
    """One comparison of the values at a path. ``equals`` may be null, so the operator is the field that is set."""

    path: Text
    equals: Any = None
    in_: Maybe[list[Any]] = Field(None, alias="in")
    matches: Maybe[Text] = None

    @model_validator(mode="after")
    def _exactly_one_operator(self) -> "OutputMatch":
        given = [name for field, name in OPERATORS.items() if field in self.model_fields_set]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise Complaint("SCHEMA", f"has {found} of the operators", "exactly one of equals, in, matches")
        return self

    @property
    def operator(self) -> str:
        return next(name for field, name in OPERATORS.items() if field in self.model_fields_set)


def unmet_required(data: JSON, paths: list[str]) -> list[str]:
    """Return one line for each path whose values are missing or null."""
    return [f"'{path}' {fault}" for path in paths if (fault := _required_fault(data, path))]


def unmet_matches(data: JSON, matches: list[OutputMatch]) -> list[str]:
    """Return one line for each comparison that does not hold."""
    return [f"'{match.path}' {fault}" for match in matches if (fault := _match_fault(data, match))]


def _required_fault(data: JSON, path: str) -> str | None:
    found = resolve_path(data, path, Steps(sys.maxsize))
    if isinstance(found, Unresolved):
        return found.reason
    if found.mode == "all":
        return "resolved to a null value" if any(value is None for value in found.values) else None
    if not found.values:
        return "resolved to no elements"
    return None if any(value is not None for value in found.values) else "resolved to null values only"


def _match_fault(data: JSON, match: OutputMatch) -> str | None:
    steps = Steps(STEPS_MAX)
    found = resolve_path(data, match.path, steps)
    if isinstance(found, Unresolved):
        return found.reason
    if found.mode == "any" and not found.values:
        return "resolved to no elements"
    try:
        passing = _evaluate_values(match, found.values, steps)
    except (regex.InvalidRegex, TooManySteps) as error:
        return (
            f"{_describe_wanted(match)}: {'the pattern' if match.operator == 'matches' else 'the comparison'} {error}"
        )
    if all(passing) if found.mode == "all" else any(passing):
        return None
    failing = [value for value, passed in zip(found.values, passing, strict=True) if not passed]
    return f"{_describe_wanted(match)}, got {_show_value(failing)}"


def _evaluate_values(match: OutputMatch, values: list[JSON], steps: Steps) -> list[bool]:
    """Return for each value whether the comparison holds."""
    match match.operator:
        case "equals":
            return [same(value, match.equals, steps) for value in values]
        case "in":
            return [any(same(value, allowed, steps) for allowed in match.in_ or []) for value in values]
        case _:
            pattern = regex.Search(regex.units(match.matches or ""))
            return [pattern.found(regex.units(as_text(value))) for value in values]


def _describe_wanted(match: OutputMatch) -> str:
    match match.operator:
        case "equals":
            return f"equals {_show_value(match.equals)}"
        case "in":
            return f"in {_show_value(match.in_)}"
        case _:
            return f"matches /{match.matches}/"


def _show_value(value: JSON) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


def same(one: JSON, other: JSON, steps: Steps) -> bool:
    """Return whether two JSON values are deeply equal; true differs from 1, and 1 equals 1.0.

    :raises TooManySteps: if it takes more steps than ``steps`` has left
    """
    steps.take(1)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        return all(map(same, one.values(), map(other.__getitem__, one), repeat(steps)))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other, repeat(steps)))
    return one == other


def as_text(value: JSON) -> str:
    """Return a value as text: a string itself, everything else as JSON, a whole number without a decimal point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
