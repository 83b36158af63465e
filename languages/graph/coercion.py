"""Coercion: convert a value to the type that a table declares, if the conversion is unambiguous."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from callboard.languages.node_types import Field, ValueType
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

UNFIT: Any = object()
"""What `coerce` returns for a value that cannot be converted."""

_TYPE_NAMES = frozenset({"string", "integer", "number", "float", "boolean", "array", "object", "list", "dict", "json"})

_OBJECT_NAMES = frozenset({"object", "dict", "json"})

_EMPTY: tuple[tuple[frozenset[str], Callable[[], JSON]], ...] = (
    (frozenset({"string"}), str),
    (frozenset({"integer", "number", "float"}), int),
    (frozenset({"boolean"}), bool),
    (frozenset({"array", "list"}), list),
    (_OBJECT_NAMES, dict),
)

_SCHEMA_MEMBERS = frozenset(
    {
        *("type", "value", "default", "required", "description", "options", "min", "max"),
        *("multiline", "sensitive", "multiple", "validation_pattern", "api_endpoint", "search_endpoint"),
    }
)
"""The members that the registry's schemas of configurations consist of."""

_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?")
_DIGITS_MAX = 300
"""A longer text is not read as a number."""


def unwrap(value: JSON, type: ValueType | None = None) -> JSON:
    """Return the value in a schema object ``{type, value | default}``; return any other value unchanged.

    An object is a value, and not a schema, if it has other members than a schema, or if an object is wanted and its
    ``type`` names another type.
    """
    if not isinstance(value, dict) or not value.keys() <= _SCHEMA_MEMBERS:
        return value
    if type == "object" and value.get("type") not in _OBJECT_NAMES:
        return value
    match value:
        case {"type": str(name), "value": given} if name in _TYPE_NAMES:
            return given
        case {"type": str(name), "default": given} if name in _TYPE_NAMES:
            return given
        case _:
            return value


def unwrap_or_empty(value: JSON) -> JSON:
    """Unwrap likewise; a schema without a value represents the empty value of its type."""
    match value:
        case {"type": str(name), **others} if others.keys() <= _SCHEMA_MEMBERS - {"value", "default"}:
            return next((make() for names, make in _EMPTY if name in names), value)
        case _:
            return unwrap(value)


def coerce(value: JSON, type: ValueType) -> JSON:
    """Convert a value to a type; return `UNFIT` if that fails. Null, and texts with templates, stay as they are."""
    if value is None or (isinstance(value, str) and "{{" in value):
        return value
    match type:
        case "string":
            return _string(value)
        case "boolean":
            return _boolean(value)
        case "integer":
            number = _number(value)
            return int(number) if number is not UNFIT and float(number).is_integer() else UNFIT
        case "number":
            return _number(value)
        case "array":
            return _parse_value(value, list)
        case "object":
            return _parse_value(value, dict)


def coerce_members(payload: JSON, declared: dict[str, Field]) -> JSON:
    """Coerce the declared members of an object where that is possible; everything else stays as it is."""
    if not isinstance(payload, dict) or not declared:
        return payload
    changed: dict[str, JSON] = {}
    for name, field in declared.items():
        value = payload.get(name)
        made = coerce(value, field.type) if value is not None else UNFIT
        if made is not UNFIT and made is not value:
            changed[name] = made
    return {**payload, **changed} if changed else payload


def _string(value: JSON) -> JSON:
    match value:
        case str():
            return value
        case bool() | int() | float():
            return msgspec.json.encode(value).decode()
        case _:
            return UNFIT


def _boolean(value: JSON) -> JSON:
    match value:
        case bool():
            return value
        case int() | float() if value in (0, 1):
            return bool(value)
        case str() if (word := value.strip().lower()) in _TRUE | _FALSE:
            return word in _TRUE
        case _:
            return UNFIT


def _number(value: JSON) -> Any:
    match value:
        case bool():
            return UNFIT
        case int() | float():
            return value
        case str() if len(value) <= _DIGITS_MAX and _NUMBER.fullmatch(text := value.strip()):
            number = float(text)
            plain_integer = re.fullmatch(r"[-+]?\d{1,18}", text)
            return int(text) if plain_integer else number if number not in (float("inf"), float("-inf")) else UNFIT
        case _:
            return UNFIT


def _parse_value(value: JSON, kind: type[Any]) -> JSON:
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        try:
            made = decode_json(value)
        except JSON_ERRORS:
            return UNFIT
        return made if isinstance(made, kind) else UNFIT
    return UNFIT
