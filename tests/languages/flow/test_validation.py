"""Validation of arguments against parameters: closed by default, formats asserted, violations with their places."""

import json
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from callboard.languages.flow.specified_providers import FINALLY, LOOP, MOCK, RETRY, SPECIFIED, TIMEOUT
from callboard.languages.flow.validation import VIOLATIONS_LISTED_MAX, FlowViolation, Schema, find_schema_faults
from callboard.languages.provider_contracts import Contract, PhaseContract, contract_of
from callboard.lib.json_schema.check import ENDLESS
from tests.support.conformance import FLOW_SCHEMAS, WITH_DATA

NAMES = {"mock": MOCK, "retry": RETRY, "timeout": TIMEOUT, "loop": LOOP, "finally": FINALLY}


def one(properties: dict[str, Any], **more: Any) -> Schema:
    return Schema({"type": "object", "properties": properties, **more})


def violation_of(schema: Schema, value: Any) -> FlowViolation:
    violation = schema.find_violation(value)
    assert violation is not None
    return violation


# -- valid arguments ---------------------------------------------------------------------------------------------------


def test_without_a_schema_only_no_arguments_fit() -> None:
    assert Schema(None).find_violation({}) is None
    assert violation_of(Schema(None), {"a": 1}).schema_path == "/additionalProperties"
    assert violation_of(Schema(None), []).schema_path == "/type"


def test_the_top_level_is_closed_unless_the_schema_says_otherwise() -> None:
    assert violation_of(one({}), {"a": 1}).message == "has 'a', which nothing declares"
    assert one({}, additionalProperties=True).find_violation({"a": 1}) is None
    assert one({}, additionalProperties={"type": "string"}).find_violation({"a": "x"}) is None
    assert violation_of(one({}, additionalProperties={"type": "string"}), {"a": 1}).instance_path == "/a"
    assert one({}, patternProperties={"^x-": {}}).find_violation({"x-a": 1}) is None
    inner = {"type": "object", "properties": {"b": {}}}
    assert one({"a": inner}).find_violation({"a": {"anything": 1}}) is None


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        ({"type": "integer"}, [5, 5.0, -0.0], [5.5, True, "5", None]),
        ({"type": "number"}, [5, 0.5], [False, "5"]),
        ({"type": "boolean"}, [True], [1, 0, "true"]),
        ({"const": 5}, [5, 5.0], [True, "5"]),
        ({"const": 1}, [1.0], [True]),
        ({"enum": [0, None]}, [0.0, None], [False, ""]),
        ({"uniqueItems": True}, [[1, True, "1"]], [[1, 1.0]]),
        ({"multipleOf": 0.5}, [1, 1.5], [0.7]),
        ({"type": ["string", "null"], "format": "duration"}, [None, "PT1S"], ["1s", 3]),
    ],
)
def test_integers_are_numbers_and_booleans_are_not(schema: dict[str, Any], fits: list[Any], fails: list[Any]) -> None:
    compiled = one({"a": schema})
    assert [value for value in fits if compiled.find_violation({"a": value})] == []
    assert [value for value in fails if not compiled.find_violation({"a": value})] == []


@pytest.mark.parametrize(
    ("name", "fits", "fails"),
    [
        ("duration", ["PT30S", "P1Y", "-PT5S", "P2W"], ["", "30s", "P", "PT"]),
        ("date-time", ["2024-01-15T09:30:00Z", "1990-12-31T15:59:60-08:00"], ["2024-01-15", "2024-01-15T25:00:00Z"]),
        ("date", ["2024-02-29", "1963-06-19"], ["2023-02-29", "20240229", "2024-2-9", "2024-W01-1"]),
        ("time", ["08:30:06Z", "08:30:06.283185+05:30", "23:59:60Z"], ["8:30:06Z", "08:30:06", "24:00:00Z"]),
        ("email", ["joe@example.com", "a.b+c@d", '"j b"@x.org', "joe@[127.0.0.1]"], ["joe", "a@b@c", "a..b@c", "a@-b"]),
        ("idn-email", ["실례@실례.테스트"], ["2962", "a b@c"]),
        ("hostname", ["example.com", "a-b.c", "localhost"], ["-a.com", "a_b", "a..b", "", "x" * 64]),
        ("ipv4", ["192.168.0.1"], ["127.0.0.0.1", "256.1.1.1", "0x7f.1", "087.10.0.1", "１.2.3.4"]),
        ("ipv6", ["::1", "::abef", "::ffff:1.2.3.4"], ["12345::", "fe80::a%eth1", ":::", "1:2"]),
        ("uri", ["http://a.b/c?d=e#f", "urn:x:y", "tel:+1-8", "http://[::1]:80/"], ["//a", "/a", "a b", "http://[x]"]),
        ("uri-reference", ["http://a", "/abc", "a/b", "#x", ""], ["\\\\a", "a b", "#a#b", "1:x"]),
        ("iri", ["http://ƒøø.ßår/?∂éœ"], ["/abc", "http://a b"]),
        ("iri-reference", ["/âππ"], ["a b"]),
        ("uuid", ["2EB8AA08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380", "x"]),
        ("json-pointer", ["", "/a~0/b~1c", "/"], ["a", "/~2", "#/a"]),
        ("relative-json-pointer", ["1", "0/a", "2#"], ["/a", "01", "-1"]),
        ("regex", ["^a+$", ""], ["(", "a**", "(?=a"]),
        ("no-such-format", ["anything"], []),
    ],
)
def test_formats_are_asserted(name: str, fits: list[str], fails: list[str]) -> None:
    compiled = one({"a": {"format": name}})
    assert [text for text in fits if compiled.find_violation({"a": text})] == []
    assert [text for text in fails if not compiled.find_violation({"a": text})] == []
    assert compiled.find_violation({"a": 12}) is None, "a format applies to strings only"


@given(text=st.text(max_size=20), name=st.sampled_from(["uri", "email", "hostname", "ipv6", "time", "regex", "iri"]))
def test_no_text_makes_a_format_raise(text: str, name: str) -> None:
    violation = one({"a": {"format": name}}).find_violation({"a": text})
    assert violation is None or violation.schema_path == "/properties/a/format"


# -- violations --------------------------------------------------------------------------------------------------------


def test_a_violation_has_its_place_and_message() -> None:
    schema = one(
        {"a/b": {"type": "array", "items": {"type": "object", "properties": {"d~": {"format": "duration"}}}}},
        required=["x"],
    )
    violation = violation_of(schema, {"a/b": [{}, {"d~": "soon"}], "z": 1})
    assert [(one.schema_path, one.instance_path, one.value) for one in (violation, *violation.all)] == [
        ("/additionalProperties", "", {"a/b": [{}, {"d~": "soon"}], "z": 1}),
        ("/required", "", {"a/b": [{}, {"d~": "soon"}], "z": 1}),
        ("/properties/a~1b/items/properties/d~0/format", "/a~1b/1/d~0", "soon"),
    ]
    assert [str(one) for one in (violation, *violation.all)] == [
        "has 'z', which nothing declares",
        "lacks 'x'",
        "/a~1b/1/d~0: is no duration",
    ]
    details = violation.details()
    assert json.loads(json.dumps(details)) == details
    assert details["schemaPath"] == "/additionalProperties"


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": ["string", "null"]}, 3, "is a number, expected string or null"),
        ({"enum": ["a", 1]}, "b", 'is none of ["a", 1]'),
        ({"const": None}, "b", "violates const null"),
        ({"minimum": 3}, 1, "violates minimum 3"),
        ({"not": {"const": "success"}}, "success", 'is excluded by {"const": "success"}'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "fits none of the alternatives"),
        ({"oneOf": [{}, {}]}, 1, "fits none of the alternatives, or more than one"),
        (False, 1, "nothing is allowed here"),
        ({"type": "object", "required": ["a", "b", "c"]}, {"b": 1}, "lacks 'a', 'c'"),
        ({"unevaluatedProperties": False}, {"b": 1}, "has 'b', which nothing declares"),
    ],
)
def test_violations_have_their_messages(schema: Any, value: Any, message: str) -> None:
    assert violation_of(one({"p": schema}), {"p": value}).message == message


def test_a_long_list_of_violations_is_cut() -> None:
    violation = violation_of(one({"a": {"items": {"type": "string"}}}), {"a": list(range(10_000))})
    assert len((violation, *violation.all)) == VIOLATIONS_LISTED_MAX
    assert all(not further.all for further in violation.all)


def test_a_long_schema_value_is_cut() -> None:
    assert len(violation_of(one({"a": {"enum": ["x" * 10_000]}}), {"a": 1}).message) < 300


def test_a_remote_reference_is_not_fetched() -> None:
    schema = one({"a": {"$ref": "https://example.com/schema.json"}})
    assert schema.find_violation({}) is None
    message = "the schema refers to 'https://example.com/schema.json', which is not part of it"
    assert violation_of(schema, {"a": 1}).message == message
    own = one({"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}})
    assert own.find_violation({"a": {"type": "string"}}) is None
    assert violation_of(own, {"a": {"type": "text"}}).instance_path == "/a/type"


def test_references_inside_are_followed() -> None:
    schema = Schema(
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/tree"}},
            "$defs": {"tree": {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}},
        }
    )
    assert schema.find_violation({"tree": {"below": {"below": {}}}}) is None
    assert violation_of(schema, {"tree": {"below": {"below": 1}}}).instance_path == "/tree/below/below"


def test_an_endless_schema_is_a_violation() -> None:
    schema = one({"a": {"$ref": "#/properties/a"}})
    assert "without end" in violation_of(schema, {"a": 1}).message


CATASTROPHIC = "^(a+)+$"
"""A backtracking engine takes twice as long for every further character."""

LONG = "a" * 40 + "b"


@pytest.mark.parametrize(
    ("schema", "value", "keyword"),
    [
        ({"pattern": CATASTROPHIC}, LONG, "pattern"),
        ({"patternProperties": {CATASTROPHIC: False}, "minProperties": 2}, {LONG: 1}, "minProperties"),
        ({"patternProperties": {CATASTROPHIC: {}}, "additionalProperties": False}, {LONG: 1}, "additionalProperties"),
        ({"patternProperties": {CATASTROPHIC: {}}, "unevaluatedProperties": False}, {LONG: 1}, "unevaluatedProperties"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": CATASTROPHIC}, LONG, "pattern"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": CATASTROPHIC}, LONG, "pattern"),
    ],
)
def test_a_catastrophic_pattern_is_matched_in_linear_time(schema: dict[str, Any], value: Any, keyword: str) -> None:
    assert violation_of(one({"a": schema}), {"a": value}).schema_path == f"/properties/a/{keyword}"


def test_a_pattern_matches_anywhere_in_a_text() -> None:
    assert one({"a": {"pattern": "b+"}}).find_violation({"a": "abc"}) is None
    assert violation_of(one({"a": {"pattern": "b+"}}), {"a": "ac"}).message == 'violates pattern "b+"'
    assert violation_of(one({"a": {"pattern": "^a$"}}), {"a": "a\n"}).schema_path == "/properties/a/pattern"
    assert violation_of(one({"a": {"pattern": "."}}), {"a": "\ud800"}).schema_path == "/properties/a/pattern"
    assert one({"a": {"pattern": "b"}}).find_violation({"a": 12}) is None
    named = one({"a": {"patternProperties": {"x": {"type": "string"}}}})
    assert named.find_violation({"a": {"axe": "", "b": 1}}) is None
    assert violation_of(named, {"a": {"axe": 1}}).schema_path == "/properties/a/patternProperties/x/type"


def test_a_pattern_that_cannot_be_read_is_a_violation() -> None:
    hidden = one({"a": {"$ref": "#/hidden"}}, hidden={"pattern": "(?=a"})
    assert find_schema_faults(hidden.schema) == [], "only a reference leads there"
    assert violation_of(hidden, {"a": "a"}).message.startswith("the schema has a pattern that cannot be matched: ")


SCHEMAS = st.recursive(
    st.sampled_from([True, False, {"type": "string"}, {"pattern": "b"}, {"$ref": "#/$defs/one"}, {"required": ["a"]}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["a", "^b", "."]), inner, max_size=2),
            "additionalProperties": inner,
            "unevaluatedProperties": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "dependentSchemas": st.dictionaries(st.sampled_from("ab"), inner, max_size=1),
            "if": inner,
            "then": inner,
            "else": inner,
        },
    ),
    max_leaves=8,
)
VALUES = st.dictionaries(st.sampled_from(["a", "b", "ab", "c"]), st.sampled_from(["b", 1, {}, {"a": 1}]), max_size=3)


@given(schema=SCHEMAS, defined=SCHEMAS, value=VALUES)
def test_verdicts_are_those_of_the_library(schema: Any, defined: Any, value: Any) -> None:
    whole = {"$defs": {"one": defined}, "allOf": [schema], "additionalProperties": True}
    violation = Schema(whole).find_violation(value)
    if violation is None or violation.message != ENDLESS:
        try:
            valid = Draft202012Validator(whole).is_valid(value)
        except RecursionError:
            # Within `anyOf` the library gathers every failure and so never ends on `allOf: [false, <itself>]`: it has
            # no verdict to compare with.
            reject()
        assert (violation is None) == valid


def test_a_recursive_schema_that_fails_before_its_recursion_has_a_verdict() -> None:
    itself = {"allOf": [False, {"$ref": "#/$defs/one"}]}
    whole = {"$defs": {"one": itself}, "anyOf": [{"$ref": "#/$defs/one"}]}
    assert violation_of(Schema(whole), {}).message == "fits none of the alternatives"


def test_defaults_and_names() -> None:
    schema = one({"a": {"default": [1]}, "b": {"default": None}, "c": {"type": "string"}, "d": True})
    assert schema.defaults == {"a": [1], "b": None}
    assert schema.names == ("a", "b", "c", "d")
    assert Schema(None).defaults == {}


# -- schemas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "location", "fault"),
    [
        (3, (), "is a number, expected object or boolean"),
        ({"type": "obj"}, ("type",), '"obj" is no type that JSON has'),
        ({"properties": {"a": {"minimum": "1"}}}, ("properties", "a", "minimum"), "is a string, expected number"),
        ({"properties": {"a": {"pattern": "("}}}, ("properties", "a", "pattern"), '"(" is no regular expression: '),
        ({"items": {"pattern": "(?=a"}}, ("items", "pattern"), '"(?=a" is no regular expression: '),
        ({"patternProperties": {"(a": {}}}, ("patternProperties",), '"(a" is no regular expression: '),
        ({"required": "a"}, ("required",), "is a string, expected array"),
        ({"items": {"$ref": "#/$defs/x"}}, ("items", "$ref"), "refers to '#/$defs/x', which is not part of the schema"),
        ({"allOf": [{"$ref": "http://x/y"}]}, ("allOf", 0, "$ref"), "refers to 'http://x/y', which is not part of "),
    ],
)
def test_an_invalid_schema_is_refused_with_its_place(schema: Any, location: tuple[str | int, ...], fault: str) -> None:
    [(where, message)] = find_schema_faults(schema)
    assert where == location
    assert message.startswith(fault)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"properties": {"$ref": {"type": "string"}, "a": {"default": {"$ref": "#/nowhere"}}}},
        {"$defs": {"a": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
        {"$defs": {"a": {"$id": "https://example.com/a"}}, "items": {"$ref": "https://example.com/a"}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
    ],
)
def test_a_valid_schema_has_no_faults(schema: Any) -> None:
    assert find_schema_faults(schema) == []


# -- the specified contracts -------------------------------------------------------------------------------------------


def _without_descriptions(value: Any, *, names: bool = False) -> Any:
    """Return a schema without its descriptions, which may be worded differently."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if names or name != "description"}
        return {
            name: _without_descriptions(part, names=name == "properties" and not names) for name, part in kept.items()
        }
    return [_without_descriptions(part) for part in value] if isinstance(value, list) else value


def _meaning_of(contract: Contract) -> Any:
    def phase(one: PhaseContract) -> Any:
        return one.kind, one.structural, _without_descriptions(one.parameters)

    phases = {name: phase(one) for name, one in contract.phases.items()}
    texts = (contract.uri, contract.code_prefix, contract.closed, contract.open, contract.attachment)
    return *texts, phases, _without_descriptions(contract.parameters), _without_descriptions(contract.metadata)


@WITH_DATA
@pytest.mark.parametrize("name", NAMES)
def test_a_specified_contract_equals_the_published_one(name: str) -> None:
    theirs = contract_of(json.loads((FLOW_SCHEMAS / f"{name}.v1.json").read_text()))
    assert _meaning_of(SPECIFIED[NAMES[name]]) == _meaning_of(theirs)


def test_there_are_five_specified_contracts_by_uri() -> None:
    assert {uri: contract.uri for uri, contract in SPECIFIED.items()} == {uri: uri for uri in NAMES.values()}
    assert [contract.uri for contract in SPECIFIED.values() if contract.is_call] == [MOCK]


WORDS = [
    "match",
    "attempts",
    "backoff",
    "initial",
    "rate",
    "jitter",
    "codes",
    "types",
    "retryable",
    "policies",
    "delay",
]
MORE_WORDS = [
    "value",
    "failure",
    "metadata",
    "code",
    "type",
    "duration",
    "call",
    "middleware",
    "success",
    "PT1S",
    "full",
]
SCALARS = st.sampled_from([None, True, 0, 1, 1.0, 2.5, "", "PT1S", "soon", "success", "full", "A.*"])
ARGUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(WORDS + MORE_WORDS), inner, max_size=3),
    max_leaves=8,
)
POLICY = st.fixed_dictionaries(
    {"match": st.dictionaries(st.sampled_from(["codes", "types", "retryable"]), ARGUMENTS, max_size=2)},
    optional={"attempts": SCALARS, "backoff": st.dictionaries(st.sampled_from(WORDS), SCALARS, max_size=3)},
)
WITH = st.dictionaries(st.sampled_from(WORDS + MORE_WORDS), ARGUMENTS, max_size=3) | st.fixed_dictionaries(
    {"policies": st.lists(POLICY, max_size=2)}
)


@WITH_DATA
@given(value=WITH, name=st.sampled_from(sorted(NAMES)))
def test_verdicts_on_arguments_equal_those_of_the_published_schemas(value: Any, name: str) -> None:
    ours, theirs = SPECIFIED[NAMES[name]], contract_of(json.loads((FLOW_SCHEMAS / f"{name}.v1.json").read_text()))
    pairs = [(ours.parameters, theirs.parameters)]
    pairs += [(ours.phases[phase].parameters, theirs.phases[phase].parameters) for phase in ours.phases]
    for mine, published_schema in pairs:
        assert bool(Schema(mine).find_violation(value)) == bool(Schema(published_schema).find_violation(value))
