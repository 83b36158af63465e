"""Approval of calls in graphs: calls of an agent, whose terms it or its TOOL nodes have, and of wired TOOL nodes."""

import json
from typing import Any

import pytest

from callboard.testing import Scenario
from tests.support.graphs import graph, node, parsed, problems_of, webhook
from tests.support.scenarios import find_keys

AI = {"model": "gpt-5-nano", "system_prompt": "Be brief.", "user_prompt": "Buy it."}
PAID: dict[str, Any] = {"tools": {"pay": [{"output": "paid"}], "see": [{"output": "seen"}]}}


def agent_graph(approve: Any = None, approve_tools: Any = None) -> Any:
    tools: dict[str, Any] = {"available_tools": ["pay", "see"]} | ({"approve": approve_tools} if approve_tools else {})
    own = AI | ({"approve": approve} if approve else {})
    nodes = [
        webhook(),
        node("ai", "AI_AGENT", "OPENAI_CHATGPT", ["tools"], **own),
        node("tools", "TOOL", "NOTION_MCP_TOOL", **tools),
    ]
    return graph(nodes, "t -> ai")


def tool_graph(approve: Any) -> Any:
    configured: dict[str, Any] = {
        "tool_name": "pay",
        "function_args": {"cents": 900},
        "available_tools": ["pay"],
        "approve": approve,
    }
    return graph([webhook(), node("buy", "TOOL", "NOTION_MCP_TOOL", **configured)], "t -> buy")


def start(scenario: Scenario, written: Any) -> Scenario:
    calls = [{"tool": "pay", "input": {"cents": 900}}, {"tool": "see", "input": {}}]
    script = {**PAID, "turns": {"ai": [{"tool_calls": calls}, {"text": "done"}]}}
    return scenario.start(source=json.dumps(written), input={"body": {"text": "Hi"}}, script=script)


def find_calls(scenario: Scenario) -> list[Any]:
    return [(call.tool, call.input) for call in scenario.payloads("tool.call")]  # pyright: ignore


@pytest.mark.parametrize(
    ("approve", "approve_tools"),
    [(["pay"], None), (None, {"tools": ["pay"]}), (None, {"when": "tool == 'pay' && input.cents > 100"})],
)
def test_an_approval_may_edit_the_call_of_an_agent(approve: Any, approve_tools: Any, scenario: Scenario) -> None:
    start(scenario, agent_graph(approve, approve_tools))
    assert find_keys(scenario, "human.asked") == ["ai#1.1!approve.1.0"]
    [asked] = scenario.payloads("human.asked")
    assert asked.question == "May agent ai call pay?"  # pyright: ignore
    scenario.answer({"decision": "approve", "arguments": {"cents": 9}})
    assert find_calls(scenario) == [("see", {}), ("pay", {"cents": 9})]
    assert scenario.result.status == "completed"
    if approve:
        scenario.crash_everywhere()


def test_a_name_in_approve_that_no_tool_has_is_warned_of(scenario: Scenario) -> None:
    start(scenario, agent_graph(["pay", "pai"])).answer("approve")
    warnings: list[Any] = scenario.payloads("node.warning")
    assert [(one.code, one.reason.rpartition(": ")[2]) for one in warnings] == [("graph.approve", "pai")]


def test_an_approval_that_expires_may_fail_the_agent(scenario: Scenario) -> None:
    start(scenario, agent_graph({"tools": ["pay"], "expires": "1h", "on_expiry": "fail"})).advance(hours=2)
    assert scenario.result.status == "failed"
    assert find_calls(scenario) == [("see", {})]


def test_a_wired_tool_waits_for_its_approval(scenario: Scenario) -> None:
    start(scenario, tool_graph("always"))
    assert find_keys(scenario, "human.asked") == ["buy#1.1!approve.0.0"]
    scenario.answer({"decision": "approve", "arguments": {"cents": 9}})
    assert find_calls(scenario) == [("pay", {"cents": 9})]
    assert scenario.result.output["result"]["result"] == "paid"  # pyright: ignore
    scenario.crash_everywhere()


def test_a_wired_tool_that_is_rejected_fails(scenario: Scenario) -> None:
    start(scenario, tool_graph(True)).answer({"decision": "reject", "reason": "no"}, by="ada")
    assert (scenario.result.status, find_calls(scenario)) == ("failed", [])
    left: list[Any] = scenario.payloads("node.exit")
    assert "ada rejected the call of pay: no" in left[-1].error.message


@pytest.mark.parametrize(
    ("approve", "where"),
    [("sometimes", "approve"), ({"when": "$json.x"}, "approve.when"), ([{"expires": 3}], "approve[0].expires")],
)
def test_wrong_terms_are_refused_with_their_place(approve: Any, where: str) -> None:
    [problem] = problems_of(tool_graph(approve))
    assert (problem.code, problem.where) == ("APPROVAL", f"nodes[1].configurations.{where}")


def test_terms_on_agents_and_tools_give_no_warning() -> None:
    assert parsed(agent_graph("*", {"once": True})).warnings == ()
