"""Approval of single calls of an agent in Python: who decides what, how a call continues, and when nobody decides."""

from collections.abc import Iterator
from typing import Any

import pytest

from callboard import Agent, Approve, NotTaken
from callboard.bus import events as ev
from callboard.testing import Scenario
from tests.support import approval_workflows as plays


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with Scenario(call_steps=True) as one:
        yield one


def pay(cents: Any, order: str = "a") -> tuple[str, dict[str, Any]]:
    return "refund", {"order": order, "cents": cents}


def turns(*calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    asked = [{"tool_calls": [{"tool": tool, "input": given} for tool, given in turn]} for turn in calls]
    return {"turns": {"clerk": [*asked, {"text": "done"}]}}


def told(scenario: Scenario, turn: int) -> list[Any]:
    """Return what the model reads of its calls in a turn: the outputs, or the codes and messages of failures."""
    parts: list[Any] = scenario.turns[f"clerk#1.1!turn.{turn}"].messages[-1].parts
    return [part.output if part.error is None else f"{part.error.code}: {part.error.message}" for part in parts]


def questions(scenario: Scenario) -> list[str]:
    return [event.key for event in scenario.events if event.type == "human.asked"]


def test_an_edited_call_is_made_beside_the_others_of_its_turn(scenario: Scenario) -> None:
    wanted = [pay(900), ("look_up", {"order": "a"})]
    scenario.start(plays.refunding, input={"text": "x"}, script=turns(wanted))
    assert scenario.result.status == "waiting:human"
    assert [event.type for event in scenario.events].count("effect.result") == 1  # The other call has been made.
    [asked] = scenario.payloads("human.asked")
    assert isinstance(asked, ev.HumanAsked)
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
    assert told(scenario, 2) == ["a: 90", "a is paid"]
    assert scenario.result.output == "done"
    [closed] = scenario.payloads("human.closed")
    assert isinstance(closed, ev.HumanClosed)
    assert (closed.outcome, closed.label) == ("answered", "approve")
    scenario.crash_everywhere()


def test_a_tool_approved_for_the_rest_of_the_run_is_not_asked_about_again(scenario: Scenario) -> None:
    scenario.start(plays.refunding, input={"text": "x"}, script=turns([pay(1), pay(2)], [pay(3)]))
    first, second = questions(scenario)
    assert (first, second) == ("clerk#1.1!approve.1.0", "clerk#1.1!approve.1.1")
    scenario.answer("approve-always", interaction=second)
    assert told(scenario, 2) == ["a: 1", "a: 2"]
    assert told(scenario, 3) == ["a: 3"]
    assert len(questions(scenario)) == 2
    scenario.crash_everywhere()


def test_only_calls_that_the_function_selects_wait(scenario: Scenario) -> None:
    scenario.start(plays.refunding_large, input={"text": "x"}, script=turns([pay(100), pay(101)]))
    assert questions(scenario) == ["clerk#1.1!approve.1.1"]
    scenario.answer({"decision": "reject", "reason": "too much"}, by="ada")
    assert told(scenario, 2) == ["a: 100", "tool.denied: ada rejected the call of refund: too much"]


def test_one_approval_may_hold_for_the_run(scenario: Scenario) -> None:
    scenario.start(plays.refunding_once, input={"text": "x"}, script=turns([pay(1)], [pay(2)], [pay("?")]))
    scenario.answer(True)
    assert len(questions(scenario)) == 1
    assert scenario.result.status == "completed"


def test_invalid_arguments_are_told_to_the_model_and_to_nobody_else(scenario: Scenario) -> None:
    scenario.start(plays.refunding, input={"text": "x"}, script=turns([pay("?")]))
    assert questions(scenario) == []
    assert told(scenario, 2)[0].startswith("tool.invalid_input: ")


def test_stop_cancels_the_run(scenario: Scenario) -> None:
    scenario.start(plays.refunding, input={"text": "x"}, script=turns([pay(1)]))
    scenario.answer({"decision": "stop", "reason": "wrong customer"})
    assert scenario.result.status == "cancelled"
    [cancelled] = scenario.payloads("cancel.requested")
    assert isinstance(cancelled, ev.CancelRequested)
    assert cancelled.reason == "wrong customer"
    assert cancelled.details == {
        "interaction": "clerk#1.1!approve.1.0",
        "user_response": {"decision": "stop", "reason": "wrong customer"},
    }
    scenario.crash_everywhere()


def test_a_call_about_which_nobody_decides_is_rejected(scenario: Scenario) -> None:
    scenario.start(plays.refunding_in_time, input={"text": "x"}, script=turns([pay(1)])).advance(hours=2)
    assert told(scenario, 2) == ["tool.denied: nobody decided within 3600 s whether refund may be called"]
    assert scenario.result.output == "done"
    scenario.crash_everywhere()


def test_or_fails_the_agent_and_the_channel_gets_the_question() -> None:
    sent: list[Any] = []

    def send(request: Any) -> Any:
        sent.append(request)
        return {"ok": True}

    with Scenario(call_steps=True, effects={"channel": send}) as scenario:
        scenario.start(plays.refunding_or_failing, input={"text": "x"}, script=turns([pay(1)])).advance(hours=2)
        assert scenario.result.output == "approval.expired"
    [message] = sent
    assert message["message"] == 'May agent clerk call refund?\n{"order":"a","cents":1}'
    assert [option["value"] for option in message["options"]] == ["approve", "reject", "approve_always", "stop"]
    assert (message["interaction"], message["user_id"]) == ("clerk#1.1!approve.1.0", "ada")


def test_mistakes_are_found_when_an_agent_is_made() -> None:
    with pytest.raises(TypeError, match="names of tools, a function, or a list of Approve"):
        Agent("a", tools=[plays.refund], approve=["refund", Approve()])  # pyright: ignore
    with pytest.raises(ValueError, match="no tool gift"):
        Agent("a", tools=[plays.refund], approve=Approve(tools=["gift"]))
    with pytest.raises(ValueError, match="which no tool is called"):
        Approve(tools=["refund", "mcp__shop__*"])
    with pytest.raises(ValueError, match="which no tool is called"):
        Agent("a", tools=[plays.refund], approve=["refund(*)"])
    with pytest.raises(ValueError, match="a list of names"):
        Approve(tools="refund")
    with pytest.raises(ValueError, match="expires"):
        Approve(expires="soon")
