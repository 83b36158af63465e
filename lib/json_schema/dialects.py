"""The versions of JSON Schema: the keywords of each version, and what it demands of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from callboard.lib.json_schema import applicators as ap
from callboard.lib.json_schema import assertions as as_
from callboard.lib.json_schema.application import Check, Dialect
from callboard.lib.json_schema.meta_schemas import meta_schema

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


@cache
def schema_of_schemas(dialect: Dialect) -> dict[str, Any]:
    """Return the meta-schema of a version. It contains itself."""
    return meta_schema(dialect.uri)
