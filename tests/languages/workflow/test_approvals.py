"""Approval of calls in workflows: per tool of a skill, and for the tools of a skill's server."""

import json
from typing import Any

import pytest

from callboard.bus.effects import ToolSpec
from callboard.testing import Scenario
from tests.support.scenarios import find_keys
from tests.support.workflows import admitted, document, refused

SCHEMA = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}


def shop(approve: Any) -> dict[str, Any]:
    tools: list[dict[str, Any]] = [
        {"name": name, "description": name, "input_schema": SCHEMA, **more}
        for name, more in (("refund", {"approve": approve}), ("look", {}))
    ]
    return {"id": "shop", "name": "Shop", "description": "d", "category": "data", "tools": tools}


def make_script(*calls: tuple[str, int]) -> dict[str, Any]:
    uses = [{"tool": tool, "input": {"cents": cents}} for tool, cents in calls]
    outputs: dict[str, Any] = {tool: [{"output": f"{tool} {cents}"}] for tool, cents in calls}
    return {"turns": {"a": [{"tool_calls": uses}, {"text": "done"}]}, "tools": outputs}


def start(scenario: Scenario, approve: Any, *calls: tuple[str, int]) -> Scenario:
    raw = document({"a": {"skills": ["shop"]}})
    return scenario.start(source=json.dumps(raw), options={"skills": [shop(approve)]}, script=make_script(*calls))


def test_a_call_is_edited_while_another_one_is_made(scenario: Scenario) -> None:
    start(scenario, {"when": "input.cents > 100", "expires": "1h"}, ("refund", 900), ("look", 1))
    assert find_keys(scenario, "human.asked") == ["a#1.1!approve.1.0"]
    assert find_keys(scenario, "tool.result") == ["a#1.1!tool.1.1"]
    scenario.answer({"decision": "approve", "arguments": {"cents": 90}}, by="ada")
    calls: list[Any] = scenario.payloads("tool.call")
    assert [(call.tool, call.input) for call in calls] == [("look", {"cents": 1}), ("refund", {"cents": 90})]
    result = scenario.result.results["a"]  # pyright: ignore
    assert [call["input"] for call in result["toolCalls"]] == [{"cents": 90}, {"cents": 1}]
    scenario.crash_everywhere()


def test_a_call_that_the_condition_does_not_select_is_made(scenario: Scenario) -> None:
    start(scenario, {"when": "input.cents > 100"}, ("refund", 100))
    assert find_keys(scenario, "human.asked") == []
    assert scenario.result.status == "completed"


@pytest.mark.parametrize("condition", ["input.order == 'x'", "input.cents + 1", "now() > now()"])
def test_a_call_whose_condition_has_no_value_waits_for_a_person(condition: str, scenario: Scenario) -> None:
    start(scenario, {"when": condition}, ("refund", 1)).answer({"decision": "reject", "reason": "odd"})
    warnings: list[Any] = scenario.payloads("node.warning")
    assert [warning.code for warning in warnings] == ["approval.condition"]
    [result] = scenario.turns["a#1.1!turn.2"].messages[-1].parts
    assert result.error.message == "a person rejected the call of refund: odd"  # pyright: ignore


def test_an_approval_that_expires_may_fail_the_node(scenario: Scenario) -> None:
    start(scenario, {"expires": "2m", "on_expiry": "fail"}, ("refund", 1)).advance(minutes=3)
    assert scenario.result.results["a"]["data"]["error"].startswith("nobody decided within 120 s")  # pyright: ignore
    assert find_keys(scenario, "tool.call") == []


def test_tools_of_a_server_need_approval_once_and_unknown_names_are_warned_of() -> None:
    server = {"command": "x", "approve": [{"tools": ["pay", "pai"], "once": True}]}
    raw = document({"a": {"skills": ["bank"]}}, skills={"bank": {"mcp": server}})
    script = make_script(("pay", 1), ("see", 2))
    with Scenario(servers={"bank": [ToolSpec("pay", "", SCHEMA), ToolSpec("see", "", SCHEMA)]}) as scenario:
        scenario.start(source=json.dumps(raw), script=script)
        assert find_keys(scenario, "human.asked") == ["a#1.1!approve.1.0"]
        scenario.answer("approve")
        assert len(find_keys(scenario, "tool.result")) == 2
        warnings: list[Any] = scenario.payloads("node.warning")
        assert [(warning.code, warning.fields) for warning in warnings] == [("APPROVAL_UNMATCHED", ["pai"])]


def test_an_approval_of_a_tool_does_not_hold_for_that_of_another_server() -> None:
    servers = {name: {"mcp": {"command": "x", "approve": "*"}} for name in ("bank", "shop")}
    raw = document({"a": {"skills": ["bank"]}, "b": {"skills": ["shop"]}}, [("a", "b")], skills=servers)
    call = {"tool_calls": [{"tool": "pay", "input": {"cents": 1}}]}
    script = {"turns": {name: [call, {"text": "done"}] for name in "ab"}, "tools": {"pay": [{"output": 1}] * 2}}
    with Scenario(servers={name: [ToolSpec("pay", "", SCHEMA)] for name in servers}) as scenario:
        scenario.start(source=json.dumps(raw), script=script).answer("approve_always")
        assert find_keys(scenario, "human.asked") == ["a#1.1!approve.1.0", "b#1.1!approve.1.0"]


@pytest.mark.parametrize(
    ("approve", "message"),
    [
        (False, "False does not say which calls need approval"),
        (["refund"], "['refund'] does not say"),
        ({"when": "input.", "tools": ["x"]}, "tools: is unknown"),
        ({"when": "inputs.x > 1"}, "when: reads inputs"),
        ({"when": "loud(input)"}, "when: calls loud"),
        ({"expires": "soon", "on_expiry": "stop"}, "on_expiry: "),
    ],
)
def test_wrong_terms_are_refused_with_their_place(approve: Any, message: str) -> None:
    [problem] = refused(document({"a": {"skills": ["shop"]}}), options={"skills": [shop(approve)]})
    assert (problem.code, problem.where) == ("APPROVAL", "options.skills[0].tools[0].approve")
    assert message in problem.message


def test_terms_of_a_skill_give_no_warning() -> None:
    plan = admitted(document({"a": {"skills": ["shop"]}}), options={"skills": [shop("once")]})
    assert plan.warnings == ()
