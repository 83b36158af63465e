"""JSON Schemas as the providers' structured output takes them.

Structured output decodes under a grammar and so guarantees the shape of an answer, but each provider takes a part of
JSON Schema only: closed objects, no recursion, no composition but ``anyOf``, few limits on numbers and lengths (see
"Structured outputs" in the documentation of Anthropic, OpenAI and Gemini). `native_schema` says whether a schema's
shape can be expressed so, without loss; what differs between the providers is their `Dialect`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from callboard.bus.effects import JSON, JsonSchema


class Dialect(Struct, frozen=True):
    """What one provider takes.

    ``optional_max`` bounds the members that may be absent and ``unions_max`` those of several types, both in a whole
    schema. ``formats`` are those of texts that the grammar has; ``const``: it has that word too; ``typed``: literals
    need a type beside them; ``object_root``: the answer must be an object.
    """

    optional_max: int
    unions_max: int
    formats: frozenset[str]
    typed: bool = False
    object_root: bool = False
    const: bool = True


_COMMON = frozenset({"date-time", "time", "date"})
_NAMES = frozenset({"duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

ANTHROPIC = Dialect(optional_max=24, unions_max=16, formats=_COMMON | _NAMES | {"uri"})
OPENAI = Dialect(optional_max=0, unions_max=500, formats=_COMMON | _NAMES, typed=True, object_root=True)
GEMINI = Dialect(optional_max=500, unions_max=500, formats=_COMMON, typed=True, const=False)

_TYPE_OF: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
_TYPES = frozenset({"object", "array", *_TYPE_OF.values()})
_IDLE = frozenset({"$schema", "$id", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_TOLD = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("format", "minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Limits without a place in the grammar: they are told in the description, and the model may heed them."""


def native_schema(schema: JsonSchema | None, dialect: Dialect) -> JsonSchema | None:
    """Return the schema to send to structured output, None if there is none or its shape cannot be expressed there."""
    if schema is None:
        return None
    shape = _Shape(dialect)
    try:
        native = shape.node(schema)
    except _Inexpressible:
        return None
    if dialect.object_root and native.get("type") != "object":
        return None
    return native if shape.optional <= dialect.optional_max and shape.unions <= dialect.unions_max else None


class _Inexpressible(Exception):
    """Structured output has no such thing."""


class _Shape:
    """A walk through a schema that counts what is limited."""

    def __init__(self, dialect: Dialect) -> None:
        self.optional = 0
        self.unions = 0
        self._dialect = dialect

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
                    native |= self.literals(name, value)
                case "anyOf" if isinstance(value, list) and value:
                    self.unions += 1
                    native["anyOf"] = [self.node(item) for item in cast("list[Any]", value)]
                case "items":
                    native["items"] = self.node(value)
                case "title" | "description":
                    native[name] = value
                case "format" if isinstance(value, str) and value in self._dialect.formats:
                    native["format"] = value
                case "minItems" if value in (0, 1):
                    native["minItems"] = value
                case _ if name in _TOLD:
                    told[name] = value
                case _ if name in _IDLE:
                    continue
                case _:
                    raise _Inexpressible
        self.kinds(native, properties, required, additional)
        if told:
            native["description"] = _with_limits(native.get("description"), told)
        return native

    def kinds(self, native: JsonSchema, properties: object, required: object, additional: object) -> None:
        """Check that a type is there, or what stands for one, and add what belongs to an object."""
        if not native.keys() & {"type", "enum", "const", "anyOf"}:
            raise _Inexpressible  # anything goes
        if self._dialect.typed and not native.keys() & {"type", "anyOf"}:
            literals = cast("list[Any]", native["enum"] if "enum" in native else [native["const"]])
            native["type"] = _types_of(literals)
        kind = native.get("type")
        kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        if "object" in kinds:
            native |= self.object(properties, required, additional)
        elif properties is not None or required or additional is not None:
            raise _Inexpressible
        if ("array" in kinds) != ("items" in native):
            raise _Inexpressible

    def type(self, value: object) -> JSON:
        kinds = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not kinds or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
            raise _Inexpressible
        self.unions += len(kinds) > 1
        return value

    def literals(self, name: str, value: object) -> JsonSchema:
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not items or any(isinstance(item, list | Mapping) for item in items):
            raise _Inexpressible
        return {name: value} if self._dialect.const or name == "enum" else {"enum": items}

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


def _types_of(literals: Sequence[JSON]) -> JSON:
    kinds = list(dict.fromkeys(_TYPE_OF[type(literal)] for literal in literals))
    return kinds[0] if len(kinds) == 1 else kinds


def _with_limits(description: object, told: Mapping[str, JSON]) -> str:
    limits = f"({', '.join(f'{name}: {msgspec.json.encode(value).decode()}' for name, value in told.items())})"
    return f"{description} {limits}" if isinstance(description, str) and description else limits
