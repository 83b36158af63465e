"""The meta-schemas: what each version of JSON Schema demands of the keywords of a schema.

They are those that are published, with the members that their parts declare in one object, in the same order, and with
the schema itself in place of references to it. So applying one needs no look-ups.
"""

from typing import Any

TYPES = ["array", "boolean", "integer", "null", "number", "object", "string"]

_MULTIPLE_OF_TO_MAX_LENGTH = (
    "positive: multipleOf; number: maximum exclusiveMaximum minimum exclusiveMinimum; count: maxLength",
)
_APPLICATORS = ("schemas: allOf anyOf oneOf; schema: not",)
_DRAFT4 = (
    "text: id $schema title description; nothing: default; positive4: multipleOf; number: maximum",
    "boolean: exclusiveMaximum; number: minimum; boolean: exclusiveMinimum; count: maxLength",
    "count_or_0: minLength; regex: pattern; schema_or_boolean: additionalItems; schema_or_list: items",
    "count: maxItems; count_or_0: minItems; boolean: uniqueItems; count: maxProperties; count_or_0: minProperties",
    "names_some: required; schema_or_boolean: additionalProperties",
    "by_name: definitions properties patternProperties; dependencies4: dependencies; some: enum; types: type",
    "text: format",
    *_APPLICATORS,
)
_MIN_LENGTH_TO_PROPERTY_NAMES = (
    "count_or_0: minLength; regex: pattern; schema: additionalItems; schema_or_list: items; count: maxItems",
    "count_or_0: minItems; boolean: uniqueItems; schema: contains; count: maxProperties",
    "count_or_0: minProperties; names: required; schema: additionalProperties; by_name: definitions properties",
    "by_pattern: patternProperties; dependencies: dependencies; schema: propertyNames",
)
_DRAFT6 = (
    "uri_reference: $id; uri: $schema; uri_reference: $ref; text: title description; nothing: default",
    "list_of_nothing: examples",
    *_MULTIPLE_OF_TO_MAX_LENGTH,
    *_MIN_LENGTH_TO_PROPERTY_NAMES,
    "nothing: const; list: enum; types: type; text: format",
    *_APPLICATORS,
)
_DRAFT7 = (
    "uri_reference: $id; uri: $schema; uri_reference: $ref; text: $comment title description; anything: default",
    "boolean: readOnly; list_of_anything: examples",
    *_MULTIPLE_OF_TO_MAX_LENGTH,
    *_MIN_LENGTH_TO_PROPERTY_NAMES,
    "anything: const; list_of_anything: enum; types: type; text: format contentMediaType contentEncoding",
    "schema: if then else",
    *_APPLICATORS,
)
_VALIDATION = (
    *_MULTIPLE_OF_TO_MAX_LENGTH,
    "count: minLength; regex: pattern; count: maxItems minItems; boolean: uniqueItems",
    "count: maxContains minContains maxProperties minProperties; names: required",
    "names_by_name: dependentRequired",
)
_META_DATA = (
    "text: title description; anything: default; boolean: deprecated readOnly writeOnly",
    "list_of_anything: examples; text: format",
)
_DRAFT2019 = (
    "by_name: definitions; dependencies: dependencies; identifier_2019: $id; uri: $schema; anchor_2019: $anchor",
    "uri_reference: $ref $recursiveRef; boolean: $recursiveAnchor; vocabulary: $vocabulary; text: $comment",
    "by_name: $defs; schema: additionalItems unevaluatedItems; schema_or_list: items",
    "schema: contains additionalProperties unevaluatedProperties; by_name: properties",
    "by_pattern: patternProperties; by_name: dependentSchemas; schema: propertyNames if then else",
    *_APPLICATORS,
    *_VALIDATION,
    "anything: const; list_of_anything: enum; types: type",
    *_META_DATA,
    "text: contentMediaType contentEncoding; schema: contentSchema",
)
_DRAFT2020 = (
    "by_name_deprecated: definitions; dependencies_deprecated: dependencies; anchor: $recursiveAnchor",
    "uri_reference: $recursiveRef $id; uri: $schema; uri_reference: $ref; anchor: $anchor",
    "uri_reference: $dynamicRef; anchor: $dynamicAnchor; vocabulary: $vocabulary; text: $comment; by_name: $defs",
    "schemas: prefixItems; schema: items contains additionalProperties; by_name: properties",
    "by_pattern: patternProperties; by_name: dependentSchemas; schema: propertyNames if then else",
    *_APPLICATORS,
    "schema: unevaluatedItems unevaluatedProperties; types: type; anything: const; list_of_anything: enum",
    *_VALIDATION,
    *_META_DATA,
    "text: contentEncoding contentMediaType; schema: contentSchema",
)
_MEMBERS: dict[str, tuple[str, ...]] = {
    "http://json-schema.org/draft-04/schema": _DRAFT4,
    "http://json-schema.org/draft-06/schema": _DRAFT6,
    "http://json-schema.org/draft-07/schema": _DRAFT7,
    "https://json-schema.org/draft/2019-09/schema": _DRAFT2019,
    "https://json-schema.org/draft/2020-12/schema": _DRAFT2020,
}
"""By the URI of a version: the kinds of values, described by `_kinds`, each with the keywords that have it."""


def meta_schema(uri: str) -> dict[str, Any]:
    """Return the meta-schema of a version, which contains itself."""
    schema: dict[str, Any] = {}
    kinds = _kinds(schema)
    groups = (group.split(": ") for line in _MEMBERS[uri] for group in line.split("; "))
    members = {name: kinds[kind] for kind, names in groups for name in names.split()}
    if uri == "http://json-schema.org/draft-04/schema":
        both = {"exclusiveMaximum": ["maximum"], "exclusiveMinimum": ["minimum"]}
        schema |= {"type": "object", "properties": members, "dependencies": both}
    else:
        schema |= {"type": ["object", "boolean"], "properties": members}
    return schema


def _kinds(schema: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    count = {"type": "integer", "minimum": 0}
    names = {"type": "array", "items": text, "uniqueItems": True}
    names_some = {"type": "array", "items": text, "minItems": 1, "uniqueItems": True}
    schemas = {"type": "array", "minItems": 1, "items": schema}
    by_name = {"type": "object", "additionalProperties": schema}
    types = {"type": "array", "items": {"enum": TYPES}, "minItems": 1, "uniqueItems": True}
    dependencies = {"type": "object", "additionalProperties": {"anyOf": [schema, names]}}
    return {
        "text": text,
        "count": count,
        "names": names,
        "names_some": names_some,
        "schema": schema,
        "schemas": schemas,
        "by_name": by_name,
        "dependencies": dependencies,
        "nothing": {},
        "anything": True,
        "boolean": {"type": "boolean"},
        "number": {"type": "number"},
        "positive": {"type": "number", "exclusiveMinimum": 0},
        "positive4": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "count_or_0": {"allOf": [count, {}]},
        "regex": {"type": "string", "format": "regex"},
        "uri": {"type": "string", "format": "uri"},
        "uri_reference": {"type": "string", "format": "uri-reference"},
        "identifier_2019": {"type": "string", "format": "uri-reference", "pattern": "^[^#]*#?$"},
        "anchor_2019": {"type": "string", "pattern": "^[A-Za-z][-A-Za-z0-9.:_]*$"},
        "anchor": {"type": "string", "pattern": "^[A-Za-z_][-A-Za-z0-9._]*$"},
        "vocabulary": {
            "type": "object",
            "propertyNames": {"type": "string", "format": "uri"},
            "additionalProperties": {"type": "boolean"},
        },
        "list": {"type": "array"},
        "list_of_nothing": {"type": "array", "items": {}},
        "list_of_anything": {"type": "array", "items": True},
        "some": {"type": "array", "minItems": 1, "uniqueItems": True},
        "types": {"anyOf": [{"enum": TYPES}, types]},
        "schema_or_boolean": {"anyOf": [{"type": "boolean"}, schema]},
        "schema_or_list": {"anyOf": [schema, schemas]},
        "by_pattern": {**by_name, "propertyNames": {"format": "regex"}},
        "by_name_deprecated": {**by_name, "deprecated": True},
        "names_by_name": {"type": "object", "additionalProperties": names},
        "dependencies4": {"type": "object", "additionalProperties": {"anyOf": [schema, names_some]}},
        "dependencies_deprecated": {**dependencies, "deprecated": True},
    }
