"""The message of a violation, worded like those of other JSON Schema validators, which models and developers know."""

from collections.abc import Sequence
from typing import Any

from callboard.lib.json_schema import patterns
from callboard.lib.json_schema.application import SchemaViolation

VALUE_CHARS_MAX = 200
"""Maximum number of characters of a value in a message."""

NAMES_LISTED_MAX = 20
"""Maximum number of names in a message."""


def violation_message(violation: SchemaViolation) -> str:
    """Return the message of a violation."""
    value, wanted = violation.value, violation.wanted
    match violation.keyword:
        case "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            return f"{show_value(value)} is not of type {', '.join(map(repr, names))}"
        case "enum":
            return f"{show_value(value)} is not one of {show_value(wanted)}"
        case "const":
            return f"{show_value(wanted)} was expected"
        case "required":
            return f"{_list_names(violation.names)} is a required property"
        case "dependentRequired" | "dependencies":
            [missing] = violation.names
            others = [name for name, names in wanted.items() if name in value and missing in names]
            return f"{show_value(missing)} is a dependency of {_list_names(others)}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return f"{show_value(value)} is {_BOUNDS[violation.keyword]} {show_value(wanted)}"
        case "multipleOf":
            return f"{show_value(value)} is not a multiple of {show_value(wanted)}"
        case "pattern":
            return f"{show_value(value)} does not match {wanted!r}"
        case "format" if wanted == "regex":
            return f"{show_value(value)} is no regular expression: {patterns.fault(value)}"
        case "format":
            return f"{show_value(value)} is not a {wanted!r}"
        case _:
            return _describe_parts(violation)


_BOUNDS = {
    "minimum": "less than the minimum of",
    "maximum": "greater than the maximum of",
    "exclusiveMinimum": "less than or equal to the minimum of",
    "exclusiveMaximum": "greater than or equal to the maximum of",
}


def _describe_parts(violation: SchemaViolation) -> str:
    value, wanted = violation.value, violation.wanted
    match violation.keyword:
        case "minLength" | "minItems" | "minProperties":
            few = "does not have enough properties" if violation.keyword == "minProperties" else "is too short"
            return f"{show_value(value)} {'should be non-empty' if wanted == 1 else few}"
        case "maxLength" | "maxItems" | "maxProperties":
            many = "has too many properties" if violation.keyword == "maxProperties" else "is too long"
            return f"{show_value(value)} {'is expected to be empty' if wanted == 0 else many}"
        case "uniqueItems":
            return f"{show_value(value)} has non-unique elements"
        case "additionalProperties":
            return _describe_unexpected("Additional", violation.names)
        case "unevaluatedProperties":
            return _describe_unexpected("Unevaluated", violation.names)
        case "unevaluatedItems":
            return f"{show_value(value)} has parts that nothing declares, which do not fit {show_value(wanted)}"
        case "items" | "additionalItems":
            return f"{show_value(value)} has more items than are expected"
        case "contains":
            return f"{show_value(value)} does not contain items matching the given schema"
        case "minContains":
            return f"too few items match the given schema (expected at least {wanted})"
        case "maxContains":
            return f"too many items match the given schema (expected at most {wanted})"
        case "anyOf":
            return f"{show_value(value)} is not valid under any of the given schemas"
        case "oneOf":
            return f"{show_value(value)} is not valid under exactly one of the given schemas"
        case "not":
            return f"{show_value(value)} should not be valid under {show_value(wanted)}"
        case _:
            return f"False schema does not allow {show_value(value)}"


def _describe_unexpected(which: str, names: Sequence[str]) -> str:
    were = "was" if len(names) == 1 else "were"
    return f"{which} properties are not allowed ({_list_names(sorted(names))} {were} unexpected)"


def _list_names(names: Sequence[str]) -> str:
    more = f", and {len(names) - NAMES_LISTED_MAX} more" if len(names) > NAMES_LISTED_MAX else ""
    return ", ".join(map(show_value, names[:NAMES_LISTED_MAX])) + more


def show_value(value: Any) -> str:
    """Return a value as text, up to `VALUE_CHARS_MAX` characters. The rest of the value is not formatted."""
    pieces: list[str] = []
    _show(value, pieces, VALUE_CHARS_MAX)
    text = "".join(pieces)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"


def _show(value: Any, pieces: list[str], room: int) -> int:
    """Write a value until the room is used up; return the remaining room."""
    if room <= 0:
        return room
    if isinstance(value, dict | list) and value:
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        pieces.append(opening)
        for index, part in enumerate(value):
            pieces.append(", " if index else "")
            room = _show(part, pieces, room - 2)
            if isinstance(value, dict):
                pieces.append(": ")
                room = _show(value[part], pieces, room)
            if room <= 0:
                return room
        pieces.append(closing)
        return room
    text = repr(value[: room + 1] if isinstance(value, str) else value)
    pieces.append(text)
    return room - len(text)
