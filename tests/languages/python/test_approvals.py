"""Approval of single calls of an agent in Python: decisions, the calls that follow them, and expiry."""

from typing import Any

import pytest

from callboard import Agent, Approve, NotTaken
from callboard.bus import events as ev
from callboard.testing import Scenario
from tests.support import approval_workflows as workflows
from tests.support.scenarios import find_keys, find_payload


def refund(cents: Any, order: str = "a") -> tuple[str, dict[str, Any]]:
    return "refund", {"order": order, "cents": cents}


def make_script(*calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    asked = [{"tool_calls": [{"tool": tool, "input": given} for tool, given in turn]} for turn in calls]
    return {"turns": {"clerk": [*asked, {"text": "done"}]}}


def read_tool_results(scenario: Scenario, turn: int) -> list[Any]:
    """Return what the model reads of its calls in a turn: the outputs, or the codes and messages of failures."""
    parts: list[Any] = scenario.turns[f"clerk#1.1!turn.{turn}"].messages[-1].parts
    return [part.output if part.error is None else f"{part.error.code}: {part.error.message}" for part in parts]


def test_an_edited_call_is_made_beside_the_others_of_its_turn(scenario: Scenario) -> None:
    wanted = [refund(900), ("look_up", {"order": "a"})]
    scenario.start(workflows.refunding, input={"text": "x"}, script=make_script(wanted))
    assert scenario.result.status == "waiting:human"
    assert [event.type for event in scenario.events].count("effect.result") == 1  # The other call has been made.
    asked = find_payload(scenario, ev.HumanAsked)
    assert asked.question == "May agent clerk call refund?"
    assert asked.request_data == {
        "kind": "approval",
        "tool": "refund",
        "arguments": {"order": "a", "cents": 900},
        "conversation": {"path": "clerk", "turn": "clerk#1.1!turn.1"},
        "usage": {"input_tokens": 0, "output_tokens": 0},
        "description": "Pay money back.",
    }
    members: Any = asked.schema
    assert members["properties"]["arguments"]["properties"]["cents"] == {"type": "integer"}
    with pytest.raises(NotTaken, match=r"arguments\.cents: 'many' is not of type 'integer'"):
        scenario.answer({"decision": "approve", "arguments": {"order": "a", "cents": "many"}})
    scenario.answer({"decision": "approve", "arguments": {"order": "a", "cents": 90}})
    assert read_tool_results(scenario, 2) == ["a: 90", "a is paid"]
    assert scenario.result.output == "done"
    closed = find_payload(scenario, ev.HumanClosed)
    assert (closed.outcome, closed.label) == ("answered", "approve")
    scenario.crash_everywhere()


def test_a_tool_approved_for_the_rest_of_the_run_is_not_asked_about_again(scenario: Scenario) -> None:
    scenario.start(workflows.refunding, input={"text": "x"}, script=make_script([refund(1), refund(2)], [refund(3)]))
    first, second = find_keys(scenario, "human.asked")
    assert (first, second) == ("clerk#1.1!approve.1.0", "clerk#1.1!approve.1.1")
    scenario.answer("approve-always", interaction=second)
    assert read_tool_results(scenario, 2) == ["a: 1", "a: 2"]
    assert read_tool_results(scenario, 3) == ["a: 3"]
    assert len(find_keys(scenario, "human.asked")) == 2
    scenario.crash_everywhere()


def test_only_calls_that_the_function_selects_wait(scenario: Scenario) -> None:
    scenario.start(workflows.refunding_large, input={"text": "x"}, script=make_script([refund(100), refund(101)]))
    assert find_keys(scenario, "human.asked") == ["clerk#1.1!approve.1.1"]
    scenario.answer({"decision": "reject", "reason": "too much"}, by="ada")
    assert read_tool_results(scenario, 2) == ["a: 100", "tool.denied: ada rejected the call of refund: too much"]


def test_an_approval_of_a_tool_may_hold_for_the_run(scenario: Scenario) -> None:
    scenario.start(
        workflows.refunding_once, input={"text": "x"}, script=make_script([refund(1)], [refund(2)], [refund("?")])
    )
    scenario.answer(True)
    assert len(find_keys(scenario, "human.asked")) == 1
    assert scenario.result.status == "completed"


def test_a_call_with_invalid_arguments_fails_without_a_question(scenario: Scenario) -> None:
    scenario.start(workflows.refunding, input={"text": "x"}, script=make_script([refund("?")]))
    assert find_keys(scenario, "human.asked") == []
    assert read_tool_results(scenario, 2)[0].startswith("tool.invalid_input: ")


def test_the_decision_stop_cancels_the_run(scenario: Scenario) -> None:
    scenario.start(workflows.refunding, input={"text": "x"}, script=make_script([refund(1)]))
    scenario.answer({"decision": "stop", "reason": "wrong customer"})
    assert scenario.result.status == "cancelled"
    cancelled = find_payload(scenario, ev.CancelRequested)
    assert cancelled.reason == "wrong customer"
    assert cancelled.details == {
        "interaction": "clerk#1.1!approve.1.0",
        "user_response": {"decision": "stop", "reason": "wrong customer"},
    }
    scenario.crash_everywhere()


def test_a_call_without_a_decision_in_time_is_rejected(scenario: Scenario) -> None:
    scenario.start(workflows.refunding_in_time, input={"text": "x"}, script=make_script([refund(1)])).advance(hours=2)
    assert read_tool_results(scenario, 2) == ["tool.denied: nobody decided within 3600 s whether refund may be called"]
    assert scenario.result.output == "done"
    scenario.crash_everywhere()


def test_a_missing_decision_may_fail_the_agent_and_a_channel_gets_the_question() -> None:
    sent: list[Any] = []

    def send(request: Any) -> Any:
        sent.append(request)
        return {"ok": True}

    with Scenario(call_steps=True, effects={"channel": send}) as scenario:
        scenario.start(workflows.refunding_or_failing, input={"text": "x"}, script=make_script([refund(1)])).advance(
            hours=2
        )
        assert scenario.result.output == "approval.expired"
    [message] = sent
    assert message["message"] == 'May agent clerk call refund?\n{"order":"a","cents":1}'
    assert [option["value"] for option in message["options"]] == ["approve", "reject", "approve_always", "stop"]
    assert (message["interaction"], message["user_id"]) == ("clerk#1.1!approve.1.0", "ada")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"approve": ["refund", Approve()]}, "names of tools, a function, or a list of Approve"),
        ({"approve": Approve(tools=["gift"])}, "no tool gift"),
        ({"approve": ["refund(*)"]}, "which no tool is called"),
    ],
)
def test_an_agent_with_wrong_approvals_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Agent("a", tools=[workflows.refund], **options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tools": ["refund", "mcp__shop__*"]}, "which no tool is called"),
        ({"tools": "refund"}, "a list of names"),
        ({"expires": "soon"}, "expires"),
    ],
)
def test_wrong_terms_of_an_approval_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Approve(**options)
