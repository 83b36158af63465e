"""JSON Schemas as Anthropic's structured output takes them.

Structured output decodes under a grammar and so guarantees the shape of an answer, but it takes a part of JSON Schema
only: closed objects, no recursion, no composition but ``anyOf``, no limits on numbers and lengths (see "Structured
outputs" in Anthropic's documentation, and ``anthropic.transform_schema``, which closes every object, also those that
are meant to be free). `native_schema` says whether a schema's shape can be expressed so, without loss.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from callboard.bus.effects import JSON, JsonSchema

OPTIONAL_MAX = 24
"""Members that may be absent, in a whole schema."""
UNIONS_MAX = 16
"""Members of several types, in a whole schema."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
_IDLE = frozenset({"$schema", "$id", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_TOLD = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("format", "minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Limits without a place in the grammar: they are told in the description, and the model may heed them."""


def native_schema(schema: JsonSchema) -> JsonSchema | None:
    """Return the schema to send to structured output, None if its shape cannot be expressed there."""
    shape = _Shape()
    try:
        native = shape.node(schema)
    except _Inexpressible:
        return None
    return native if shape.optional <= OPTIONAL_MAX and shape.unions <= UNIONS_MAX else None


class _Inexpressible(Exception):
    """Structured output has no such thing."""


class _Shape:
    """A walk through a schema that counts what is limited."""

    def __init__(self) -> None:
        self.optional = 0
        self.unions = 0

    def node(self, schema: object) -> JsonSchema:
        if not isinstance(schema, Mapping):
            raise _Inexpressible  # true and false are schemas too: anything, and nothing
        members = dict(cast("Mapping[str, Any]", schema))
        native: JsonSchema = {}
        told: dict[str, JSON] = {}
        properties, required = members.pop("properties", None), members.pop("required", [])
        additional = members.pop("additionalProperties", None)
        for name, value in members.items():
            match name:
                case "type":
                    native["type"] = self.type(value)
                case "enum" | "const":
                    native[name] = self.literals(value)
                case "anyOf" if isinstance(value, list) and value:
                    self.unions += 1
                    native["anyOf"] = [self.node(item) for item in cast("list[Any]", value)]
                case "items":
                    native["items"] = self.node(value)
                case "title" | "description":
                    native[name] = value
                case "format" if isinstance(value, str) and value in _FORMATS:
                    native["format"] = value
                case "minItems" if value in (0, 1):
                    native["minItems"] = value
                case _ if name in _TOLD:
                    told[name] = value
                case _ if name in _IDLE:
                    continue
                case _:
                    raise _Inexpressible
        if not native.keys() & {"type", "enum", "const", "anyOf"}:
            raise _Inexpressible  # anything goes
        kind = native.get("type")
        kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        if "object" in kinds:
            native |= self.object(properties, required, additional)
        elif properties is not None or required or additional is not None:
            raise _Inexpressible
        if ("array" in kinds) != ("items" in native):
            raise _Inexpressible
        if told:
            native["description"] = _with_limits(native.get("description"), told)
        return native

    def type(self, value: object) -> JSON:
        kinds = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not kinds or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
            raise _Inexpressible
        self.unions += len(kinds) > 1
        return value

    def literals(self, value: object) -> JSON:
        for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if isinstance(item, list | Mapping):
                raise _Inexpressible
        return value

    def object(self, properties: object, required: object, additional: object) -> JsonSchema:
        # An open object that names members is closed: what fits the closed one fits the open one. One that names none
        # is a free map, which the grammar does not have.
        if not isinstance(properties, Mapping) or not properties or additional not in (None, False):
            raise _Inexpressible
        members = cast("Mapping[str, Any]", properties)
        names = cast("list[Any]", required) if isinstance(required, list) else [required]
        if not all(isinstance(name, str) and name in members for name in names):
            raise _Inexpressible
        self.optional += len(members) - len(set(names))
        return {
            "properties": {name: self.node(member) for name, member in members.items()},
            "required": [name for name in members if name in names],
            "additionalProperties": False,
        }


def _with_limits(description: object, told: Mapping[str, JSON]) -> str:
    limits = f"({', '.join(f'{name}: {msgspec.json.encode(value).decode()}' for name, value in told.items())})"
    return f"{description} {limits}" if isinstance(description, str) and description else limits
