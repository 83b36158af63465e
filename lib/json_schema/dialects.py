"""The versions of JSON Schema: the keywords of each version, and its meta-schema."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callboard.lib.json_schema import applicators as ap
from callboard.lib.json_schema import assertions as as_
from callboard.lib.json_schema.application import Check

if TYPE_CHECKING:
    from referencing import Resource, Specification


class Dialect(Struct, frozen=True, eq=False):
    """A version of JSON Schema. ``uri`` is the value of ``$schema`` in its schemas."""

    uri: str
    checks: Mapping[str, Check]
    id: str = "$id"
    lonely_references: bool = False
    """Whether a ``$ref`` makes the other keywords of its schema ineffective."""

    def resource(self, schema: Any) -> "Resource[Any]":
        """Return a schema as a resource in which references are resolved."""
        return self._specification.create_resource(schema)

    def lookup(self, scope: Any, keyword: str, reference: str) -> Any:
        """Resolve a reference in a scope.

        :raises Unresolvable: of ``referencing``, if it leads outside the schema
        """
        from referencing.jsonschema import lookup_recursive_ref

        return lookup_recursive_ref(scope) if keyword == "$recursiveRef" else scope.lookup(reference)

    @property
    def _specification(self) -> "Specification[Any]":
        from referencing.jsonschema import specification_with

        return specification_with(self.uri)


_ALWAYS: Mapping[str, Check] = {
    "$ref": ap.referring("$ref"),
    "additionalProperties": ap.additional_properties,
    "allOf": ap.all_of,
    "anyOf": ap.any_of,
    "enum": as_.enum,
    "format": as_.format_,
    "maxItems": as_.max_items,
    "maxLength": as_.max_length,
    "maxProperties": as_.max_properties,
    "minItems": as_.min_items,
    "minLength": as_.min_length,
    "minProperties": as_.min_properties,
    "multipleOf": as_.multiple_of,
    "not": ap.not_,
    "oneOf": ap.one_of,
    "pattern": as_.pattern,
    "patternProperties": ap.pattern_properties,
    "properties": ap.properties,
    "required": as_.required,
    "type": as_.type_,
    "uniqueItems": as_.unique_items,
}
_DRAFT4: Mapping[str, Check] = {
    **_ALWAYS,
    "additionalItems": ap.additional_items,
    "dependencies": as_.dependencies,
    "items": ap.items_before_2020,
    "maximum": as_.maximum_draft4,
    "minimum": as_.minimum_draft4,
    "type": as_.type_draft4,
}
_DRAFT6: Mapping[str, Check] = {
    **_DRAFT4,
    "const": as_.const,
    "contains": ap.contains_any,
    "exclusiveMaximum": as_.exclusive_maximum,
    "exclusiveMinimum": as_.exclusive_minimum,
    "maximum": as_.maximum,
    "minimum": as_.minimum,
    "propertyNames": ap.property_names,
    "type": as_.type_,
}
_DRAFT7: Mapping[str, Check] = {**_DRAFT6, "if": ap.if_}
_SINCE_2019: Mapping[str, Check] = {
    "contains": ap.contains,
    "dependentRequired": as_.dependent_required,
    "dependentSchemas": ap.dependent_schemas,
    "unevaluatedItems": ap.unevaluated_items,
    "unevaluatedProperties": ap.unevaluated_properties,
}
_DRAFT2019: Mapping[str, Check] = {
    **{keyword: check for keyword, check in _DRAFT7.items() if keyword != "dependencies"},
    **_SINCE_2019,
    "$recursiveRef": ap.referring("$recursiveRef"),
}
_DRAFT2020: Mapping[str, Check] = {
    **{keyword: check for keyword, check in _DRAFT2019.items() if keyword not in ("$recursiveRef", "additionalItems")},
    "$dynamicRef": ap.referring("$dynamicRef"),
    "items": ap.items,
    "prefixItems": ap.prefix_items,
}

_OLD = "http://json-schema.org/draft-0{}/schema"
DRAFT2020 = Dialect("https://json-schema.org/draft/2020-12/schema", _DRAFT2020)
DIALECTS: Mapping[str, Dialect] = {
    dialect.uri: dialect
    for dialect in (
        Dialect(_OLD.format(4), _DRAFT4, id="id", lonely_references=True),
        Dialect(_OLD.format(6), _DRAFT6, lonely_references=True),
        Dialect(_OLD.format(7), _DRAFT7, lonely_references=True),
        Dialect("https://json-schema.org/draft/2019-09/schema", _DRAFT2019),
        DRAFT2020,
    )
}


def dialect_of(schema: Any) -> Dialect:
    """Return the version that a schema names; the newest if it names none, or an unknown one."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    return DIALECTS.get(named.removesuffix("#"), DRAFT2020) if isinstance(named, str) else DRAFT2020


# -- meta-schemas ------------------------------------------------------------------------------------------------------

_INNER = frozenset(
    ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
)
_INNER_BY_NAME = frozenset(("dependencies", "dependentSchemas", "patternProperties", "properties"))
_INNER_LISTS = frozenset(("allOf", "anyOf", "oneOf"))
_NOTHING = frozenset(("$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema"))
_NOTHING_EITHER = frozenset(("$vocabulary", "default", "definitions", "description", "id", "title"))


@cache
def schema_of_schemas(dialect: Dialect) -> dict[str, Any]:
    """Return the meta-schema of a version, with each reference replaced by its target.

    The result contains itself recursively, so that applying it needs no look-ups.
    """
    from jsonschema_specifications import REGISTRY

    root = REGISTRY.contents(dialect.uri if "draft/" in dialect.uri else f"{dialect.uri}#")
    return _Unrolled(root, REGISTRY.resolver_with_root(dialect.resource(root))).root


class _Unrolled:
    """A meta-schema with its references replaced, and with the members that its parts (``allOf``) declare merged."""

    def __init__(self, root: Any, scope: Any) -> None:
        self.root: dict[str, Any] = {}
        self._made: dict[int, Any] = {id(root): self.root}
        self._fill(self.root, root, scope)
        members = self.root.get("properties", {})
        for part in self.root.pop("allOf", ()):
            members |= part.get("properties", {})
        self.root["properties"] = members

    def _of(self, schema: Any, scope: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            return self.root
        if "$ref" in schema:
            found = scope.lookup(schema["$ref"])
            return self._of(found.contents, found.resolver)
        if id(schema) not in self._made:
            made = self._made[id(schema)] = {}
            self._fill(made, schema, scope)
        return self._made[id(schema)]

    def _fill(self, made: dict[str, Any], schema: dict[str, Any], scope: Any) -> None:
        for keyword, value in schema.items():
            if keyword in _INNER:
                made[keyword] = self._of(value, scope)
            elif keyword in _INNER_BY_NAME:
                made[keyword] = {name: self._of(inner, scope) for name, inner in value.items()}
            elif keyword in _INNER_LISTS:
                made[keyword] = [self._of(inner, scope) for inner in value]
            elif keyword not in _NOTHING and keyword not in _NOTHING_EITHER:
                made[keyword] = value
