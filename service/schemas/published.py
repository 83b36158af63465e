"""Published schemas: the output of msgspec and pydantic in a form that validators and code generators accept.

- `items: false` beside `prefixItems` becomes the schema of the items, since `maxItems` already forbids
  more. Generators accept no boolean there.
- Arrays and objects without restrictions say explicitly that they accept any members.
- `default: null` is left out: generators treat a member with a default as always present.
- Required members are also listed as properties, and formats specific to pydantic are removed.
- Bounds under pydantic's names get those of JSON Schema.
- Definitions with the same name are distinguished by their modules.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

Schema = dict[str, Any]

_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are schemas under arbitrary names."""

_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONES = frozenset(
    {
        *("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_OF_OBJECTS = ("properties", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties")
_SHAPES = ("$ref", "allOf", "anyOf", "oneOf")


def each(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """Return a schema with a change applied to it and to every schema in it, the innermost first."""
    if not isinstance(schema, dict):
        return schema
    found = cast("Schema", schema)
    made: Schema = {}
    for name, value in found.items():
        if name in _MAPS and isinstance(value, dict):
            made[name] = {key: each(one, change) for key, one in cast("Schema", value).items()}
        elif name in _LISTS and isinstance(value, list):
            made[name] = [each(one, change) for one in cast("list[Any]", value)]
        elif name in _ONES:
            made[name] = each(value, change)
        else:
            made[name] = value
    return change(made)


def publish_schema(schema: Schema) -> Schema:
    """Return a schema in its published form."""
    return cast("Schema", each(schema, _correct))


def describe_members(schema: Schema, texts: Mapping[str, str], owner: str = "") -> Schema:
    """Return a schema with a description of every member that has none, for editors.

    ``texts`` are keyed by ``Owner.member`` or ``member``; ``owner`` is the definition or member that contains it.
    """
    made: Schema = {}
    for name, value in schema.items():
        if name == "properties" and isinstance(value, dict):
            members = cast("Schema", value)
            # An empty schema is a member of any type or, in a condition, a required member.
            takes = schema.get("type") == "object"
            made[name] = {one: _describe_member(texts, owner, one, inner, takes) for one, inner in members.items()}
        elif name in _MAPS and isinstance(value, dict):
            made[name] = {one: _within(inner, texts, one) for one, inner in cast("Schema", value).items()}
        elif name in _LISTS and isinstance(value, list):
            made[name] = [_within(one, texts, owner) for one in cast("list[Any]", value)]
        else:
            made[name] = _within(value, texts, owner) if name in _ONES else value
    return made


def _within(value: Any, texts: Mapping[str, str], owner: str) -> Any:
    return describe_members(cast("Schema", value), texts, owner) if isinstance(value, dict) else value


def _describe_member(texts: Mapping[str, str], owner: str, member: str, schema: Any, takes: bool) -> Any:
    text = texts.get(f"{owner}.{member}", texts.get(member))
    if not isinstance(schema, dict):
        return {"description": text} if schema is True and text else schema
    found = describe_members(cast("Schema", schema), texts, member)
    return {**found, "description": text} if text and (found or takes) and "description" not in found else found


def without_defaults(schema: Schema) -> Schema:
    """Return a schema whose members mention their defaults in the description instead of a keyword.

    Generators treat a member with a default as required in requests, and as always present in answers.
    """
    return cast("Schema", each(schema, _tell_default))


def _tell_default(schema: Schema) -> Schema:
    if "default" not in schema:
        return schema
    default = schema["default"]
    found = {name: value for name, value in schema.items() if name != "default"}
    if default in ("", [], {}, False):
        return found
    told = f"Default: {default}." if not isinstance(default, dict | list) else ""
    return {**found, "description": f"{found.get('description', '')} {told}".strip()} if told else found


def unique(components: Mapping[str, Schema]) -> tuple[dict[str, Schema], dict[str, str]]:
    """Return components under unique short names, and the new names by the old ones.

    msgspec names two classes with the same name by their full paths, but gives both the same title.
    """
    named = {name: _short(name) if "." in name else name for name in components}
    assert len(set(named.values())) == len(named), "two modules of one name have a class of one name"
    return {named[name]: {**schema, "title": named[name]} for name, schema in components.items()}, named


def _short(path: str) -> str:
    *_packages, module, name = path.split(".")
    return "".join(part.capitalize() for part in module.split("_")) + name


def _correct(schema: Schema) -> Schema:
    found = {_BOUNDS.get(name, name): value for name, value in schema.items()}
    if found.get("default", 0) is None:
        del found["default"]
    if found.get("format") == "path":
        # Specific to pydantic.
        del found["format"]
    if missing := [name for name in found.get("required", []) if name not in found.get("properties", {})]:
        found["properties"] = {**found.get("properties", {}), **{name: {} for name in missing}}
    kind = found.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "array" in kinds:
        if "prefixItems" in found and found.get("items", False) is False:
            found |= _tuple(found)
        found.setdefault("items", {})
    if "object" in kinds and not any(name in found for name in (*_OF_OBJECTS, *_SHAPES)):
        found["additionalProperties"] = True
    return found


def _tuple(schema: Schema) -> Schema:
    kinds: list[Any] = []
    for one in schema["prefixItems"]:
        if one not in kinds:
            kinds.append(one)
    most = {"maxItems": schema.get("maxItems", len(schema["prefixItems"]))}
    return {"items": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}, **most}
