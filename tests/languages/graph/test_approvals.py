"""Approval of calls in graphs: of an agent, by its TOOL nodes or by the agent itself, and of wired TOOL nodes."""

import json
from typing import Any

import pytest

from callboard.testing import Scenario
from tests.support.graphs import graph, node, parsed, problems_of, webhook

AI = {"model": "gpt-5-nano", "system_prompt": "Be brief.", "user_prompt": "Buy it."}
PAID: dict[str, Any] = {"tools": {"pay": [{"output": "paid"}], "see": [{"output": "seen"}]}}


def of_agent(approve: Any = None, of_tools: Any = None) -> Any:
    tools: dict[str, Any] = {"available_tools": ["pay", "see"]} | ({"approve": of_tools} if of_tools else {})
    own = AI | ({"approve": approve} if approve else {})
    nodes = [
        webhook(),
        node("ai", "AI_AGENT", "OPENAI_CHATGPT", ["tools"], **own),
        node("tools", "TOOL", "NOTION_MCP_TOOL", **tools),
    ]
    return graph(nodes, "t -> ai")


def of_tool(approve: Any) -> Any:
    configured: dict[str, Any] = {
        "tool_name": "pay",
        "function_args": {"cents": 900},
        "available_tools": ["pay"],
        "approve": approve,
    }
    return graph([webhook(), node("buy", "TOOL", "NOTION_MCP_TOOL", **configured)], "t -> buy")


def started(scenario: Scenario, written: Any) -> Scenario:
    calls = [{"tool": "pay", "input": {"cents": 900}}, {"tool": "see", "input": {}}]
    script = {**PAID, "turns": {"ai": [{"tool_calls": calls}, {"text": "done"}]}}
    return scenario.start(source=json.dumps(written), input={"body": {"text": "Hi"}}, script=script)


def keys(scenario: Scenario, kind: str) -> list[str]:
    return [event.key for event in scenario.events if event.type == kind]


def calls_of(scenario: Scenario) -> list[Any]:
    return [(call.tool, call.input) for call in scenario.payloads("tool.call")]  # pyright: ignore


@pytest.mark.parametrize(
    ("approve", "of_tools"),
    [(["pay"], None), (None, {"tools": ["pay"]}), (None, {"when": "tool == 'pay' && input.cents > 100"})],
)
def test_a_call_of_an_agent_is_edited(approve: Any, of_tools: Any) -> None:
    with Scenario() as scenario:
        started(scenario, of_agent(approve, of_tools))
        assert keys(scenario, "human.asked") == ["ai#1.1!approve.1.0"]
        [asked] = scenario.payloads("human.asked")
        assert asked.question == "May agent ai call pay?"  # pyright: ignore
        scenario.answer({"decision": "approve", "arguments": {"cents": 9}})
        assert calls_of(scenario) == [("see", {}), ("pay", {"cents": 9})]
        assert scenario.result.status == "completed"
        if approve:
            scenario.crash_everywhere()


def test_a_name_that_no_tool_has_is_told() -> None:
    with Scenario() as scenario:
        started(scenario, of_agent(["pay", "pai"])).answer("approve")
        warnings: list[Any] = scenario.payloads("node.warning")
        assert [(one.code, one.reason.rpartition(": ")[2]) for one in warnings] == [("graph.approve", "pai")]


def test_an_agent_fails_if_nobody_decides_and_its_terms_say_so() -> None:
    with Scenario() as scenario:
        started(scenario, of_agent({"tools": ["pay"], "expires": "1h", "on_expiry": "fail"})).advance(hours=2)
        assert scenario.result.status == "failed"
        assert calls_of(scenario) == [("see", {})]


def test_a_wired_tool_waits() -> None:
    with Scenario() as scenario:
        started(scenario, of_tool("always"))
        assert keys(scenario, "human.asked") == ["buy#1.1!approve.0.0"]
        scenario.answer({"decision": "approve", "arguments": {"cents": 9}})
        assert calls_of(scenario) == [("pay", {"cents": 9})]
        assert scenario.result.output["result"]["result"] == "paid"  # pyright: ignore
        scenario.crash_everywhere()


def test_a_wired_tool_that_is_rejected_fails() -> None:
    with Scenario() as scenario:
        started(scenario, of_tool(True)).answer({"decision": "reject", "reason": "no"}, by="ada")
        assert (scenario.result.status, calls_of(scenario)) == ("failed", [])
        left: list[Any] = scenario.payloads("node.exit")
        assert "ada rejected the call of pay: no" in left[-1].error.message


@pytest.mark.parametrize(
    ("approve", "where"),
    [("sometimes", "approve"), ({"when": "$json.x"}, "approve.when"), ([{"expires": 3}], "approve[0].expires")],
)
def test_a_mistake_is_refused(approve: Any, where: str) -> None:
    [problem] = problems_of(of_tool(approve))
    assert (problem.code, problem.where) == ("APPROVAL", f"nodes[1].configurations.{where}")


def test_no_warning_is_given_for_it() -> None:
    assert parsed(of_agent("*", {"once": True})).warnings == ()
