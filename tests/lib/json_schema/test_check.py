"""JSON Schema for the output of models and tools: patterns take bounded time, and an invalid one is a fault."""

from typing import Any

import pytest

from callboard.languages.json_schema import schema_fault, violations

CATASTROPHIC = "^(a+)+$"
"""A backtracking engine takes twice as long for every further character."""

LONG = "a" * 40 + "b"


@pytest.mark.parametrize(
    "version",
    [
        {},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"$schema": "https://json-schema.org/draft/2019-09/schema"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
    ],
)
def test_a_catastrophic_pattern_is_matched_in_linear_time(version: dict[str, Any]) -> None:
    messages = violations({**version, "properties": {"a": {**version, "pattern": CATASTROPHIC}}}, {"a": LONG})
    assert messages == [f"a: {LONG!r} does not match {CATASTROPHIC!r}"]
    closed = {**version, "patternProperties": {CATASTROPHIC: {}}, "additionalProperties": False}
    assert violations(closed, {LONG: 1}) == [f"Additional properties are not allowed ({LONG!r} was unexpected)"]


@pytest.mark.parametrize("version", ["2020-12", "2019-09"])
def test_unevaluated_members_are_violations(version: str) -> None:
    schema: dict[str, Any] = {
        "$schema": f"https://json-schema.org/draft/{version}/schema",
        "allOf": [{"$ref": "#/$defs/known"}],
        "unevaluatedProperties": False,
        "$defs": {"known": {"patternProperties": {CATASTROPHIC: {}}}},
    }
    assert violations(schema, {"aaa": 1}) == []
    assert violations(schema, {"b": 1, LONG: 1}) == [
        f"Unevaluated properties are not allowed ({LONG!r}, 'b' were unexpected)"
    ]


def test_a_pattern_beyond_re2_is_matched_as_in_javascript() -> None:
    slug = {"type": "string", "pattern": "^(?!.*--)[a-z0-9-]+$"}
    assert schema_fault(slug) is None
    assert violations(slug, "a-b") == []
    assert violations(slug, "a--b") == ["'a--b' does not match '^(?!.*--)[a-z0-9-]+$'"]
    twice = {"patternProperties": {r"^(a+)\1$": {"type": "integer"}}}
    assert len(violations(twice, {"aa": "x", "aaa": "y"})) == 1


def test_a_catastrophic_pattern_beyond_re2_is_given_up() -> None:
    [message] = violations({"pattern": "^(?=a)(a+)+$"}, "a" * 40 + "!")
    assert message == "applying the schema takes more than 500000 steps"


@pytest.mark.parametrize("schema", [{"pattern": "(?=a"}, {"patternProperties": {"(?=a": {}}}])
def test_a_pattern_that_cannot_be_read_is_a_fault(schema: dict[str, Any]) -> None:
    fault = schema_fault({"properties": {"a": schema}})
    assert fault is not None
    assert "'(?=a' is no regular expression: " in fault
    [message] = violations(schema, {"a": 1} if "patternProperties" in schema else "a")
    assert message.startswith("the schema has a pattern that cannot be matched: ")
