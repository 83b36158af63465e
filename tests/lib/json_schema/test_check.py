"""JSON Schema for what models and tools say: no pattern holds anybody up, and one that cannot be read is told."""

from typing import Any

import pytest

from callboard.languages.json_schema import schema_fault, violations

CATASTROPHIC = "^(a+)+$"
"""On a backtracking engine it takes twice as long with every character more."""

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
def test_no_pattern_holds_an_interpreter_up(version: dict[str, Any]) -> None:
    told = violations({**version, "properties": {"a": {**version, "pattern": CATASTROPHIC}}}, {"a": LONG})
    assert told == [f"a: {LONG!r} does not match {CATASTROPHIC!r}"]
    closed = {**version, "patternProperties": {CATASTROPHIC: {}}, "additionalProperties": False}
    assert violations(closed, {LONG: 1}) == [f"Additional properties are not allowed ({LONG!r} was unexpected)"]


@pytest.mark.parametrize("version", ["2020-12", "2019-09"])
def test_members_that_nothing_evaluates(version: str) -> None:
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


def test_what_re2_cannot_read_is_matched_as_javascript_does() -> None:
    slug = {"type": "string", "pattern": "^(?!.*--)[a-z0-9-]+$"}
    assert schema_fault(slug) is None
    assert violations(slug, "a-b") == []
    assert violations(slug, "a--b") == ["'a--b' does not match '^(?!.*--)[a-z0-9-]+$'"]
    twice = {"patternProperties": {r"^(a+)\1$": {"type": "integer"}}}
    assert len(violations(twice, {"aa": "x", "aaa": "y"})) == 1


def test_such_a_pattern_does_not_hold_anybody_up() -> None:
    [told] = violations({"pattern": "^(?=a)(a+)+$"}, "a" * 40 + "!")
    assert told == "applying the schema takes more than 500000 steps"


@pytest.mark.parametrize("schema", [{"pattern": "(?=a"}, {"patternProperties": {"(?=a": {}}}])
def test_a_pattern_that_cannot_be_read_is_a_fault(schema: dict[str, Any]) -> None:
    fault = schema_fault({"properties": {"a": schema}})
    assert fault is not None
    assert "'(?=a' is no regular expression: " in fault
    [told] = violations(schema, {"a": 1} if "patternProperties" in schema else "a")
    assert told.startswith("the schema has a pattern that cannot be matched: ")
