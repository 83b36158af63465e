"""Approval of calls in flows: the parameter ``approve`` of the providers ``tool`` and ``model``."""

import json
from typing import Any

import pytest

from callboard.languages.registry import language
from callboard.testing import Scenario
from tests.support.flow_providers import flow_of, ours

PAY = {
    "type": "scripted",
    "tools": [
        {"name": "pay", "input_schema": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
        {"name": "see"},
    ],
}
PAID: dict[str, Any] = {"tools": {"pay": [{"output": "paid"}], "see": [{"output": "seen"}]}}


def pay(approve: Any, **more: Any) -> str:
    return json.dumps(flow_of(ours("tool"), source=PAY, tool="pay", approve=approve, **more))


def keys(scenario: Scenario, kind: str) -> list[str]:
    return [event.key for event in scenario.events if event.type == kind]


def failure(scenario: Scenario) -> dict[str, Any]:
    output: Any = scenario.result.output
    return output["failure"]


def test_an_answer_can_edit_the_arguments_of_a_tool_call() -> None:
    with Scenario() as scenario:
        source = pay({"when": "input.cents > 100", "to": "ada"}, arguments="{{ step.input }}")
        scenario.start(source=source, input={"cents": 900}, script=PAID)
        assert keys(scenario, "human.asked") == ["main/a:call.tool#1.1!approve.0.0"]
        [asked] = scenario.payloads("human.asked")
        assert asked.question == "May step a call pay?"  # pyright: ignore
        scenario.answer({"decision": "approve", "arguments": {"cents": 9}})
        [call] = scenario.payloads("tool.call")
        assert call.input == {"cents": 9}  # pyright: ignore
        assert scenario.result.output["value"] == "paid"  # pyright: ignore
        scenario.crash_everywhere()


def test_a_rejected_call_is_a_failure_of_the_provider() -> None:
    with Scenario() as scenario:
        scenario.start(source=pay("always"), input={"cents": 1}, script=PAID)
        scenario.answer({"decision": "reject", "reason": "no"}, by="ada")
        assert failure(scenario)["code"] == "Provider.Call.Tool.Denied"
        assert failure(scenario)["message"] == "ada rejected the call of pay: no"


@pytest.mark.parametrize(
    ("on_expiry", "code", "type"),
    [("reject", "Provider.Call.Tool.Denied", "error"), ("fail", "Provider.Call.Tool.NotDecided", "timeout")],
)
def test_a_call_without_a_decision_fails_at_its_expiry(on_expiry: str, code: str, type: str) -> None:
    with Scenario() as scenario:
        approve = {"expires": "PT1H", "on_expiry": on_expiry}
        scenario.start(source=pay(approve), input={"cents": 1}, script=PAID).advance(hours=2)
        assert (failure(scenario)["code"], failure(scenario)["type"]) == (code, type)


def test_a_tool_call_that_waits_does_not_hold_up_another() -> None:
    calls = [{"tool": "pay", "input": {"cents": 1}}, {"tool": "see", "input": {}}]
    script = {**PAID, "turns": {"a": [{"tool_calls": calls}, {"text": "done"}]}}
    with Scenario() as scenario:
        source = json.dumps(flow_of(ours("model"), prompt="?", tools=[PAY], approve=["pay"]))
        scenario.start(source=source, script=script)
        assert keys(scenario, "human.asked") == ["main/a:call.model#1.1!approve.1.0"]
        assert keys(scenario, "tool.result") == ["main/a:call.model#1.1!tool.1.1"]
        scenario.answer("approve")
        assert scenario.result.output["value"] == "done"  # pyright: ignore


@pytest.mark.parametrize(
    ("approve", "where"),
    [
        ("sometimes", "with.approve"),
        ({"when": "vars.x > 1"}, "with.approve.when"),
        ({"expires": "soon"}, "with.approve.expires"),
        ({"tools": ["pay"]}, "with.approve.tools"),
    ],
)
def test_an_invalid_approval_is_an_error(approve: Any, where: str) -> None:
    problems = language("flow").parse(pay(approve))
    assert isinstance(problems, list)
    [problem] = problems
    assert (problem.code, problem.severity, problem.where) == ("APPROVAL", "error", f"steps.a.call.{where}")


def test_an_invalid_approval_from_an_expression_fails_the_call() -> None:
    with Scenario() as scenario:
        scenario.start(source=pay({"when": "{{ 'x >' }}"}), input={}, script=PAID)
        assert failure(scenario)["code"] == "Provider.Call.Tool.Failed"
        assert keys(scenario, "tool.call") == []
