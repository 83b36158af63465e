"""JSON Schemas in the form that the providers' structured output accepts.

Structured output decodes under a grammar and so guarantees the shape of an answer, but each provider accepts a part of
JSON Schema only: closed objects, recursion at one provider alone, no composition but ``anyOf``, few limits on numbers
and lengths (see "Structured outputs" in the documentation of Anthropic, OpenAI and Gemini). `native_schema` checks
whether a schema's shape can be expressed without loss; the differences between the providers are in their
`SchemaSubset`.

A ``$ref`` into the schema itself is replaced by its target, which every provider accepts. If a definition refers to
itself, the ``$ref`` is kept, for a provider that accepts those.

`with_object_schema` does the same for the input of a tool. Anthropic and OpenAI refuse a whole request for one tool
whose schema combines others at the top (`REFUSED`). Their properties become properties of the object, and the
description quotes the keywords, so that a model sees both. Input is checked against the tool's own schema.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callboard.bus.effects import ToolSpec
from callboard.lib.json_types import JSON, JsonSchema


class SchemaSubset(Struct, frozen=True):
    """The part of JSON Schema that one provider accepts.

    ``optional_max`` bounds the members that may be absent and ``unions_max`` those of several types, both in a whole
    schema. ``formats`` are the formats of texts that the grammar has; ``const``: it has that keyword too; ``typed``:
    literals need a type next to them; ``object_root``: the answer must be an object; ``recursive``: definitions may
    refer to themselves.
    """

    optional_max: int
    unions_max: int
    formats: frozenset[str]
    typed: bool = False
    object_root: bool = False
    const: bool = True
    recursive: bool = False


_COMMON = frozenset({"date-time", "time", "date"})
_NAMES = frozenset({"duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

ANTHROPIC = SchemaSubset(optional_max=24, unions_max=16, formats=_COMMON | _NAMES | {"uri"})
OPENAI = SchemaSubset(
    optional_max=0, unions_max=500, formats=_COMMON | _NAMES, typed=True, object_root=True, recursive=True
)
GEMINI = SchemaSubset(optional_max=500, unions_max=500, formats=_COMMON, typed=True, const=False)

NODES_MAX = 2_000
"""Maximum number of schemas within a native schema; a larger one is asked for in words."""

_TYPE_OF: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
_TYPES = frozenset({"object", "array", *_TYPE_OF.values()})
_IDLE = frozenset(
    {
        *("$schema", "$id", "$comment", "$anchor", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("discriminator", "$defs", "definitions"),
    }
)
_DEFINITIONS = frozenset({"$defs", "definitions"})
_ANNOTATIONS = frozenset({"title", "description", *_IDLE})
_TOLD = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("format", "minLength", "maxLength", "pattern", "contentEncoding", "contentMediaType"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Limits that the grammar does not have: they are added to the description, and the model may follow them."""


def native_schema(schema: JsonSchema | None, dialect: SchemaSubset) -> JsonSchema | None:
    """Return the schema for structured output; None without a schema, or if its shape cannot be expressed."""
    if schema is None:
        return None
    shape = _Shape(dialect, schema)
    try:
        native = shape.root()
    except (_Inexpressible, RecursionError):
        return None
    if dialect.object_root and native.get("type") != "object":
        return None
    return native if shape.optional <= dialect.optional_max and shape.unions <= dialect.unions_max else None


class _Inexpressible(Exception):
    """Structured output cannot express a schema."""


class _Shape:
    """A walk through a schema that counts the constructs with limits."""

    def __init__(self, dialect: SchemaSubset, schema: JsonSchema) -> None:
        self.optional = 0
        self.unions = 0
        self._dialect = dialect
        self._schema = schema
        self._open: list[str] = []
        """The references that are being followed, the outermost first."""
        self._definitions: dict[str, JsonSchema | None] = {}
        """The definitions that refer to themselves, by the names that they have in the native schema."""
        self._names: dict[str, str] = {}
        """Their names by the references to them."""
        self._nodes = 0

    def root(self) -> JsonSchema:
        """Return the native schema as a whole."""
        native = self.node({name: member for name, member in self._schema.items() if name not in _DEFINITIONS})
        definitions = {name: shape for name, shape in self._definitions.items() if shape is not None}
        return {**native, "$defs": definitions} if definitions else native

    def reference(self, pointer: object, beside: Mapping[str, Any]) -> JsonSchema:
        """Return the target of a reference, with the annotations ``beside`` it."""
        if not isinstance(pointer, str) or set(beside) - _ANNOTATIONS:
            raise _Inexpressible
        if pointer in self._open:
            return self._recursion(pointer)
        target = _found(self._schema, pointer)
        self._open.append(pointer)
        try:
            return self.node({**target, **beside} if isinstance(target, Mapping) else target)
        finally:
            self._open.pop()

    def _recursion(self, pointer: str) -> JsonSchema:
        """Refer to a definition that refers to itself."""
        if not self._dialect.recursive:
            raise _Inexpressible
        if pointer == "#":
            return {"$ref": "#"}
        name = self._names.setdefault(pointer, f"{_plain_name(pointer)}{len(self._names) or ''}")
        if name not in self._definitions:
            self._definitions[name] = None
            open_before, self._open = self._open, [pointer]
            self._definitions[name] = self.node(_found(self._schema, pointer))
            self._open = open_before
        return {"$ref": f"#/$defs/{name}"}

    def node(self, schema: object) -> JsonSchema:
        if not isinstance(schema, Mapping):
            raise _Inexpressible  # true and false are schemas too: anything, and nothing
        members = dict(cast("Mapping[str, Any]", schema))
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise _Inexpressible  # references to references multiply
        members = _merge_all_of(members)
        if "$ref" in members:
            return self.reference(members.pop("$ref"), members)
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
                case "anyOf" | "oneOf" if isinstance(value, list) and value:
                    # That exactly one of them fits is checked afterwards, like the rest of the schema.
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
        """Check that the schema has a type or an equivalent, and add the members of an object."""
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
        # An open object that names members becomes closed: a value of the closed one fits the open one. One without
        # names is a free map, which the grammar does not have.
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


def _found(schema: JsonSchema, pointer: str) -> Any:
    """Return the target of a reference into the schema itself."""
    if not pointer.startswith("#"):
        raise _Inexpressible
    found: Any = schema
    for token in pointer[1:].split("/")[1:]:
        name = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = cast("Any", found)[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(cast("list[Any]", found)):
            found = cast("Any", found)[int(name)]
        else:
            raise _Inexpressible
    return found


def _plain_name(pointer: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", pointer.rpartition("/")[2]) or "root"


def _merge_all_of(members: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the only member of its ``allOf`` merged in; generators write annotated references so."""
    match members.get("allOf"):
        case [{**only}] if not set(members) - {"allOf", *_ANNOTATIONS}:
            own = {name: value for name, value in members.items() if name != "allOf"}
            return {**cast("dict[str, Any]", only), **own}
        case _:
            return members


def _types_of(literals: Sequence[JSON]) -> JSON:
    kinds = list(dict.fromkeys(_TYPE_OF[type(literal)] for literal in literals))
    return kinds[0] if len(kinds) == 1 else kinds


def _with_limits(description: object, told: Mapping[str, JSON]) -> str:
    limits = f"({', '.join(f'{name}: {msgspec.json.encode(value).decode()}' for name, value in told.items())})"
    return f"{description} {limits}" if isinstance(description, str) and description else limits


REFUSED = ("anyOf", "oneOf", "allOf", "not", "enum")
"""Keywords that may not be at the top of a tool's schema."""

QUOTED_CHARS_MAX = 4_000
"""How much of these keywords a description quotes."""


def with_object_schema(spec: ToolSpec) -> ToolSpec:
    """Return a tool in the form for an API that refuses combined schemas at the top."""
    schema = _without_reference(spec.input_schema)
    moved = {word: schema[word] for word in REFUSED if word in schema}
    rest = {word: value for word, value in schema.items() if word not in moved}
    properties = _properties([rest, *_branches(moved)])
    shaped = {**rest, "type": "object", **({"properties": properties} if properties else {})}
    if not moved:
        return replace(spec, input_schema=shaped)
    quoted = msgspec.json.encode(moved).decode()
    if len(quoted) > QUOTED_CHARS_MAX:
        quoted = f"{quoted[:QUOTED_CHARS_MAX]}…"
    description = f"{spec.description}\n\nThe input must also fit this JSON Schema: {quoted}".lstrip()
    return replace(spec, description=description, input_schema=shaped)


def _without_reference(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a reference at the top by its target, if that is in the schema itself."""
    reference = schema.get("$ref")
    target: Any = schema
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return dict(schema)
    for step in reference[2:].split("/"):
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    if not isinstance(target, Mapping) or "$ref" in target:
        return dict(schema)
    return {**target, **{word: value for word, value in schema.items() if word != "$ref"}}


def _branches(moved: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    for word in ("allOf", "anyOf", "oneOf"):
        branches = moved.get(word)
        yield from (one for one in (branches if isinstance(branches, list) else []) if isinstance(one, Mapping))


def _properties(schemas: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the joined properties of schemas; one with different descriptions may be any of these."""
    found: dict[str, list[Any]] = {}
    for schema in schemas:
        properties = schema.get("properties")
        for name, property in properties.items() if isinstance(properties, Mapping) else ():
            described = found.setdefault(name, [])
            if property not in described:
                described.append(property)
    return {name: one[0] if len(one) == 1 else {"anyOf": one} for name, one in found.items()}
