"""Schemas without end: what comes out is an error that somebody handles, however full the stack is already."""

from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker
from jsonschema_specifications import REGISTRY

from callboard.bus.schemas import followable, schema_error
from callboard.languages.flow.validation import Schema, schema_faults
from callboard.languages.json_keywords import bounded
from callboard.languages.json_schema import schema_fault, violations

ONE: dict[str, Any] = {"$ref": "#/$defs/one"}
ENDLESS: dict[str, Any] = {
    "$id": "https://example.org/endless",
    "$defs": {"one": {"unevaluatedProperties": ONE, "if": ONE}},
    **ONE,
}
"""Some depths of the stack make ``jsonschema`` itself panic over it."""


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def below(frames: int, check: Any) -> Any:
    """Call something with so many frames more on the stack."""
    return below(frames - 1, check) if frames else check()


@pytest.mark.parametrize("version", [Draft202012Validator, Draft7Validator])
@pytest.mark.parametrize("bound", [followable, bounded])
def test_a_reference_without_end_is_a_recursion_error_wherever_the_stack_ends(version: Any, bound: Any) -> None:
    validator = bound(version)(ENDLESS, registry=REGISTRY)
    for frames in range(60):
        with pytest.raises(RecursionError):
            below(frames, lambda: list(validator.iter_errors({"a": 1})))


def test_a_schema_that_is_nested_too_deep_is_a_recursion_error_wherever_the_stack_ends() -> None:
    for frames in range(40):
        with pytest.raises(RecursionError):
            below(frames, lambda: schema_error(nested(300), Draft202012Validator, FormatChecker(())))
    assert schema_error(nested(30), Draft202012Validator, FormatChecker(())) is None


def test_dynamic_references_are_followed_as_far() -> None:
    schema = {"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}, "b": {"type": "string"}}}
    validator = followable(Draft202012Validator)(schema, registry=REGISTRY)
    assert [list(error.path) for error in validator.iter_errors({"a": {"a": {"b": 1}}})] == [["a", "a", "b"]]


def test_interpreters_tell_it_as_a_fault() -> None:
    (told,) = violations(ENDLESS, {})
    assert "without end" in told
    found = Schema(ENDLESS).violation({})
    assert found is not None
    assert "without end" in found.message
    assert schema_fault(nested(300)) == "nested too deep"
    assert schema_faults(nested(300)) == [((), "is nested too deep")]
