"""The question whether a tool may be called, its schema, and its answers."""

from typing import Any

import pytest

from callboard.bus.effects import ToolSpec, Usage
from callboard.languages.approvals.question import (
    ApprovalAnswer,
    Misfit,
    ProposedCall,
    answer_schema,
    make_question,
    read_answer,
)
from callboard.languages.json_schema import schema_fault, violations

REFUND = ToolSpec(
    "refund",
    "Pay money back.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"cents": {"$ref": "#/$defs/Money"}},
        "required": ["cents"],
        "$defs": {"Money": {"type": "integer", "minimum": 1}},
    },
)
CALL = ProposedCall(REFUND, {"cents": 5}, "agent clerk", "clerk")


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("approve", ApprovalAnswer("approve")),
        (" Approve-Always ", ApprovalAnswer("approve_always")),
        (True, ApprovalAnswer("approve")),
        ("false", ApprovalAnswer("reject")),
        ('{"decision": "stop", "reason": " no "}', ApprovalAnswer("stop", reason="no")),
        ({"decision": "approve", "arguments": None, "reason": None}, ApprovalAnswer("approve")),
        ({"decision": "approve", "arguments": {"cents": 7}}, ApprovalAnswer("approve", True, {"cents": 7})),
        (
            {"decision": "approve_always", "arguments": '{"cents": 7}'},
            ApprovalAnswer("approve_always", True, {"cents": 7}),
        ),
        ({"decision": "reject", "arguments": {"cents": 5}, "reason": "why"}, ApprovalAnswer("reject", reason="why")),
    ],
)
def test_a_decision_is_a_word_or_an_object(response: Any, answer: ApprovalAnswer) -> None:
    assert read_answer(REFUND, response) == answer


@pytest.mark.parametrize(
    ("response", "problems"),
    [
        ("perhaps", ["'perhaps'", "one of approve, reject, approve_always, stop"]),
        (None, ["None"]),
        ([True], ["[True]"]),
        ({}, ["decision: is missing"]),
        (
            {"decision": "yes", "arguments": {"cents": 0}, "reason": 3, "x": 1},
            ["x: ", "decision: ", "reason: ", "cents"],
        ),
        ({"decision": "approve", "arguments": "{"}, ["arguments."]),
    ],
)
def test_a_wrong_answer_is_refused_with_all_problems_and_places(response: Any, problems: list[str]) -> None:
    with pytest.raises(Misfit) as found:
        read_answer(REFUND, response)
    assert all(one in str(found.value) for one in problems), found.value


def test_the_schema_of_answers_has_that_of_the_tool() -> None:
    schema: Any = answer_schema(CALL)
    assert schema_fault(schema) is None
    assert violations(schema, {"decision": "approve", "arguments": {"cents": 3}}) == []
    assert violations(schema, {"decision": "approve", "arguments": {"cents": 0}}) != []
    assert schema["properties"]["arguments"]["default"] == {"cents": 5}


def test_a_question_has_its_call_and_options() -> None:
    asked = make_question(CALL, Usage(3, 4), to="ada", channel="slack", due=None, expiry="reject")
    assert (asked.type, asked.channel_type, asked.timeout_action) == ("tool_approval", "slack", None)
    assert asked.request_data == {
        "kind": "approval",
        "tool": "refund",
        "arguments": {"cents": 5},
        "description": "Pay money back.",
        "conversation": {"path": "clerk"},
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "to": "ada",
    }
    labels = [one["label"] for one in asked.options]
    assert labels == ["Approve", "Reject", "Approve refund for the rest of the run", "Stop the run"]
