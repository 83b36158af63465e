"""Callboard's JSON Schema: its verdicts equal those of the library, and its work is bounded."""

import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from jsonschema_specifications import REGISTRY

from callboard.lib.json_schema import check as checking
from callboard.lib.json_schema.application import DEPTH_MAX, STEPS_MAX
from callboard.lib.json_schema.assertions import equal, key_of
from callboard.lib.json_schema.check import Inapplicable
from callboard.lib.json_schema.dialects import DIALECTS, schema_of_schemas
from callboard.lib.json_schema.violation_messages import VALUE_CHARS_MAX, show_value, violation_message
from callboard.lib.step_limits import Steps

LIBRARY: dict[str, Any] = {
    "http://json-schema.org/draft-04/schema": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
"""The library's validators."""

TOO_MANY = f"applying the schema takes more than {STEPS_MAX} steps"


def fits(schema: Any, value: Any) -> bool:
    return not checking.violations(schema, value)


def refusal(schema: Any, value: Any) -> str:
    """Return why a schema cannot be applied."""
    with pytest.raises(Inapplicable) as raised:
        checking.violations(schema, value)
    return str(raised.value)


# -- verdicts ----------------------------------------------------------------------------------------------------------

SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2.5, -1, "", "a", "b", "ab", 10**20])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([["a"], ["b"], ["a", "c"]])
TYPES = st.sampled_from(["null", "boolean", "string", "number", "integer", "array", "object"])
COUNTS = st.integers(0, 3)


@cache
def _schemas(uri: str, *, referring: bool = True) -> st.SearchStrategy[Any]:
    """Schemas of a version with its keywords; without references they cannot refer to themselves."""
    since_6, since_2019 = "draft-04" not in uri, "draft/" in uri
    plain: dict[str, Any] = {
        "type": TYPES | st.sampled_from([["string", "null"], ["integer", "object"]]),
        "enum": st.tuples(VALUES).map(list) | st.sampled_from([[1, "a", None], [[1], {"a": True}]]),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minimum": st.sampled_from([0, 1.5]),
        "maximum": st.sampled_from([0, 1.5]),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": st.sampled_from(["a", "^b$", "."]),
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "uniqueItems": st.booleans(),
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "required": NAMES,
    }
    if since_6:
        plain |= {"const": VALUES, "exclusiveMinimum": st.just(0), "exclusiveMaximum": st.just(1.5)}
    if since_2019:
        plain |= {
            "minContains": COUNTS,
            "maxContains": COUNTS,
            "dependentRequired": st.dictionaries(st.sampled_from("ab"), NAMES, max_size=1),
        }
    references = st.sampled_from([{"$ref": "#/definitions/one"}, {"$ref": "#/definitions/one", "minItems": 1}])
    if "2020" in uri:
        references |= st.sampled_from([{"$dynamicRef": "#here"}, {"$ref": "#named"}])
    leaves = st.fixed_dictionaries({}, optional=plain)
    leaves = leaves | references if referring else leaves
    if since_6:
        leaves |= st.booleans()
    return st.recursive(leaves, lambda inner: _enclose(inner, uri), max_leaves=6)


def _enclose(inner: st.SearchStrategy[Any], uri: str) -> st.SearchStrategy[Any]:
    by_name = st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    some = st.lists(inner, min_size=1, max_size=2)
    keywords: dict[str, Any] = {
        "properties": by_name,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b", "."]), inner, max_size=2),
        "additionalProperties": inner,
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": inner,
        "items": inner,
    }
    if "2020" not in uri:
        keywords |= {"items": inner | some, "additionalItems": inner}
    if "draft/" not in uri:
        keywords["dependencies"] = st.dictionaries(st.sampled_from("ab"), inner | NAMES, max_size=1)
    if "draft-04" not in uri:
        keywords |= {"contains": inner, "propertyNames": inner}
    if "draft-04" not in uri and "draft-06" not in uri:
        keywords |= {"if": inner, "then": inner, "else": inner}
    if "2020" in uri:
        keywords |= {"prefixItems": some, "unevaluatedItems": inner, "unevaluatedProperties": inner}
        keywords["dependentSchemas"] = st.dictionaries(st.sampled_from("ab"), inner, max_size=1)
    return st.fixed_dictionaries({}, optional=keywords)


@pytest.mark.parametrize("uri", DIALECTS)
@given(data=st.data())
def test_verdicts_are_those_of_the_library(uri: str, data: st.DataObject) -> None:
    inner = _schemas(uri)
    definitions = {"one": data.draw(_schemas(uri, referring=False))}
    if "2020" in uri:
        definitions |= {
            "two": {"$dynamicAnchor": "here", "type": ["string", "array"]},
            "three": {"$anchor": "named", "maxLength": 1},
        }
    schema = {"$schema": uri, "definitions": definitions, "allOf": [data.draw(inner)]}
    if "2020" in uri:
        schema["$defs"] = schema.pop("definitions")
        schema = json.loads(json.dumps(schema).replace("#/definitions/", "#/$defs/"))
    value = data.draw(VALUES)
    assert fits(schema, value) == _verdict_of_library(uri, schema, value)


def _verdict_of_library(uri: str, schema: Any, value: Any) -> bool:
    """Return the library's verdict; it raises an error on ``additionalItems`` beside ``items: false``."""
    try:
        return LIBRARY[uri](schema, registry=REGISTRY).is_valid(value)
    except TypeError:
        reject()


@pytest.mark.parametrize("uri", DIALECTS)
@given(data=st.data())
def test_schemas_are_valid_as_in_the_library(uri: str, data: st.DataObject) -> None:
    kind = LIBRARY[uri]
    broken = st.sampled_from([{"type": "text"}, {"required": ["a", "a"]}, {"minItems": -1}, {"allOf": []}, {"not": 3}])
    broken |= st.sampled_from([{"properties": []}, {"enum": 1}, {"maxLength": 1.5}, {"uniqueItems": 1}, {"pattern": 1}])
    places = st.sampled_from([("properties", "a"), ("allOf", 0), ("not",), ("items",), ("additionalProperties",)])
    schema: Any = data.draw(_schemas(uri) | broken | VALUES)
    for way in data.draw(st.lists(places, max_size=2)):
        schema = {way[0]: schema} if len(way) == 1 else {way[0]: {way[1]: schema} if way[1] == "a" else [schema]}
    expected = kind(kind.META_SCHEMA, registry=REGISTRY).is_valid(schema)
    spoken = DIALECTS[uri]
    assert (checking.faults(schema, dialect=spoken, formats=checking.NO_FORMATS) == []) == expected


@pytest.mark.parametrize("uri", DIALECTS)
def test_a_meta_schema_is_a_valid_schema(uri: str) -> None:
    assert checking.faults(LIBRARY[uri].META_SCHEMA) == []
    assert schema_of_schemas(DIALECTS[uri])["properties"]["properties"]


def test_an_unknown_version_is_read_as_the_newest() -> None:
    for named in ("http://json-schema.org/draft-03/schema#", "urn:x", 3):
        assert fits({"$schema": named, "prefixItems": [{"type": "string"}]}, ["a"])
        assert not fits({"$schema": named, "prefixItems": [{"type": "string"}]}, [1])


@given(VALUES, VALUES)
def test_values_have_the_same_key_exactly_if_they_are_equal(one: Any, other: Any) -> None:
    steps = Steps(10_000)
    assert (key_of(one, steps) == key_of(other, steps)) == equal(one, other, steps)


def test_dynamic_references_are_followed() -> None:
    schema = {"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}, "b": {"type": "string"}}}
    assert [violation.path for violation in checking.violations(schema, {"a": {"a": {"b": 1}}})] == [("a", "a", "b")]


def test_a_reference_outside_the_schema_is_refused() -> None:
    for reference in ("https://example.com/x", "http://json-schema.org/draft-07/schema#", "#/nowhere", "other.json"):
        assert refusal({"$ref": reference}, 1) == f"the schema refers to {reference!r}, which is not part of it"


def test_a_reference_to_an_invalid_schema_is_refused() -> None:
    for hidden in (5, "x", {"required": 5}, {"properties": []}, {"pattern": 3}):
        message = refusal({"$ref": "#/hidden", "hidden": hidden}, {"a": 1} if hidden != {"pattern": 3} else "a")
        assert message == "a part of the schema is none"


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": ["string", "null"]}, 3),
        ({"enum": ["a", 1]}, "b"),
        ({"const": None}, "b"),
        ({"required": ["a"]}, {}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
        ({"minimum": 3}, 1),
        ({"maximum": 3}, 4),
        ({"exclusiveMinimum": 3}, 3),
        ({"multipleOf": 2}, 3),
        ({"pattern": "a"}, "b"),
        ({"minLength": 2}, "b"),
        ({"maxLength": 0}, "b"),
        ({"minItems": 1}, []),
        ({"maxItems": 1}, [1, 2]),
        ({"minProperties": 2}, {}),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 1}]),
        ({"additionalProperties": False}, {"b": 1, "a": 2}),
        ({"anyOf": [{"type": "string"}]}, {"a": ["b"]}),
        ({"not": {}}, None),
        (False, 1),
    ],
)
def test_a_violation_has_the_message_of_the_library(schema: Any, value: Any) -> None:
    [violation] = checking.violations(schema, value)
    [theirs] = list(jsonschema.Draft202012Validator(schema).iter_errors(value))
    assert violation_message(violation) == re.sub(
        r"the minimum of|the maximum of", lambda found: found[0], theirs.message
    )


def test_a_large_value_is_shortened() -> None:
    for value in (["x" * 50] * 10_000, {"a": "x" * 10**6}, "x" * 10**6, {str(n): n for n in range(1_000)}):
        assert len(show_value(value)) == VALUE_CHARS_MAX
        assert repr(value).startswith(show_value(value)[:-1])
    for value in ([], {}, [1, {"a": None}], "é'\"", 1.5):
        assert show_value(value) == repr(value)


# -- endless schemas ---------------------------------------------------------------------------------------------------

ONE: dict[str, Any] = {"$ref": "#/$defs/one"}
ENDLESS: dict[str, Any] = {
    "$id": "https://example.org/endless",
    "$defs": {"one": {"unevaluatedProperties": ONE, "if": ONE}},
    **ONE,
}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def call_at_depth(frames: int, check: Any) -> Any:
    """Call a function with that many further frames on the stack."""
    return call_at_depth(frames - 1, check) if frames else check()


@pytest.mark.parametrize("uri", [uri for uri in DIALECTS if "04" not in uri and "06" not in uri])
def test_an_endless_reference_is_refused_at_any_stack_depth(uri: str) -> None:
    schema = {**ENDLESS, "$schema": uri}
    for frames in range(0, 90, 3):
        assert "without end" in call_at_depth(frames, lambda: refusal(schema, {"a": 1}))


def test_the_depth_of_schemas_is_bounded_at_any_stack_depth() -> None:
    value: Any = "x"
    for _ in range(DEPTH_MAX - 1):
        value = {"a": value}
    for frames in (0, 50):
        assert call_at_depth(frames, lambda: checking.violations(nested(DEPTH_MAX - 1), value)) == []
        assert "without end" in call_at_depth(frames, lambda: refusal(nested(DEPTH_MAX), {"a": value}))
        with pytest.raises(Inapplicable, match=checking.TOO_DEEP):
            call_at_depth(frames, lambda: checking.faults(nested(DEPTH_MAX)))
    assert checking.faults(nested(100)) == []


# -- expensive schemas -------------------------------------------------------------------------------------------------

MANY = 20_000
OBJECTS = [{"n": n, "text": f"item {n}"} for n in range(8_000)]
WIDE = {f"p{n}": {"type": "string"} for n in range(MANY)}

EXPENSIVE: dict[str, tuple[Any, Any]] = {
    "required of each": ({"items": {"required": ["p"] * MANY}}, [{"p": 1}] * 2_000),
    "properties of each": ({"items": {"properties": WIDE}}, [{}] * 1_000),
    "enum of each": ({"items": {"enum": [[n] for n in range(MANY)]}}, [[n] for n in range(MANY)] * 5),
    "anyOf of each": ({"items": {"anyOf": [{"const": n} for n in range(1_000)]}}, list(range(5_000, 10_000))),
    "branches of branches": (
        {"$defs": {"one": {"anyOf": [{"type": "array", "items": ONE}] * 2}}, **ONE},
        json.loads("[" * 40 + "1" + "]" * 40),
    ),
    "unevaluated at every level": (
        {"$defs": {"one": {"allOf": [{"properties": {"a": ONE}}] * 2, "unevaluatedProperties": False}}, **ONE},
        json.loads('{"a":' * 40 + "{}" + "}" * 40),
    ),
    "patterns of each": ({"patternProperties": {f"^x{n}$": {} for n in range(500)}}, {str(n): n for n in range(2_000)}),
    "a slow pattern": ({"pattern": ".*a.{999}b"}, "ab" * 100_000),
    "a pattern of JavaScript's": ({"pattern": "^(?=a)(a+)+$"}, "a" * 40 + "!"),
    "a pattern without an anchor": ({"pattern": "(?=a)b"}, "a" * 500_000),
    "contains of each": ({"contains": {"required": ["z"]}, "minContains": 2}, [{}] * 100_000),
    "every item": ({"items": {"type": "object", "properties": {"n": {"type": "integer"}}}}, OBJECTS * 10),
    "unknown keywords": ({"items": {f"x{n}": 1 for n in range(1_000)}}, [1] * 2_000),
    "a false for each": ({"items": {"anyOf": [False] * 500}}, [{}] * 5_000),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_an_expensive_schema_is_given_up(name: str) -> None:
    schema, value = EXPENSIVE[name]
    assert refusal(schema, value) == TOO_MANY


AFFORDABLE: dict[str, tuple[Any, Any, int]] = {
    "unique objects": ({"uniqueItems": True}, OBJECTS, 0),
    "objects that are not unique": ({"uniqueItems": True}, [*OBJECTS, OBJECTS[0]], 1),
    "lists whose hashes are equal in Python": (
        {"uniqueItems": True},
        [[-1 if n >> bit & 1 else -2 for bit in range(14)] for n in range(8_000)],
        0,
    ),
    "one of many": ({"items": {"enum": list(range(MANY))}}, list(range(MANY)), 0),
    "as many branches as violate": ({"anyOf": [{"required": ["x"]}] * 5_000}, {"a": ["x" * 1_000] * 1_000}, 1),
    "as many violations": (
        {"items": {"type": "string"}},
        [["x" * 1_000] * 100] * 5_000,
        checking.VIOLATIONS_SOUGHT_MAX,
    ),
    "a large schema": ({"properties": WIDE}, {"p7": 7}, 1),
}


@pytest.mark.parametrize("name", AFFORDABLE)
def test_a_large_value_is_checked(name: str) -> None:
    schema, value, violations = AFFORDABLE[name]
    assert len(checking.violations(schema, value)) == violations


def test_a_large_schema_is_checked_and_a_huge_one_given_up() -> None:
    assert checking.faults({"properties": {f"p{n}": {"type": "string", "minLength": 1} for n in range(5_000)}}) == []
    with pytest.raises(Inapplicable, match="looking at it takes more than"):
        checking.faults({"properties": {f"p{n}": {"type": "string", "minLength": 1} for n in range(50_000)}})
