"""Input schemas of tools in the form that model APIs accept: an object at the top, without keywords that combine
schemas.

Anthropic and OpenAI refuse a whole request for one tool whose schema has ``anyOf``, ``oneOf``, ``allOf``, ``not`` or
``enum`` at the top. Their properties become properties of the object, and the description quotes the keywords, so that
a model sees both. The tool's own schema is unchanged, and input is checked against it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.bus.effects import ToolSpec

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
