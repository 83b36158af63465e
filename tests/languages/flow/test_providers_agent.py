"""The ``model`` and ``tool`` providers: turns, conversations with tools, structured answers, real MCP servers."""

from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.testing.crashes import CrashingLog
from tests.support.flow_providers import flow_of, ours, payloads_of, played, simulate_crashes, simulate_flow
from tests.support.flows import FlowTheatre
from tests.support.forks import python
from tests.support.places import TESTS

FIXTURES = TESTS / "fixtures" / "tools"

USAGE = {"input_tokens": 10, "output_tokens": 3, "cache_read_tokens": 0, "cache_write_tokens": 0}

FOUND = {"type": "object", "properties": {"found": {"type": "integer"}}, "required": ["found"]}

SEARCH = {
    "type": "scripted",
    "tools": [{"name": "search", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}],
}


def harness(script: dict[str, Any], log: CrashingLog | None = None) -> FlowTheatre:
    return FlowTheatre(log, script=script)


def turns(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"turns": {"a": list(entries)}, **more}


# -- the model ---------------------------------------------------------------------------------------------------------


def test_a_model_answers_a_prompt() -> None:
    made = harness(turns({"text": "Rome", "usage": USAGE}))
    output, events = simulate_flow(made, flow_of(ours("model"), prompt="Capital?", system="Be brief."), "unread")
    assert output["value"] == "Rome"
    assert output["metadata"] == {
        "model": "scripted",
        "turns": 1,
        "usage": USAGE,
        "stop_reason": "end_turn",
        "tools": [],
    }
    [call] = payloads_of(events, ev.ModelCall)
    assert (call.system, call.messages[0].parts[0].text) == ("Be brief.", "Capital?")
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert (end.usage.input_tokens, end.usage.output_tokens) == (10, 3)


@pytest.mark.parametrize(("input", "asked"), [("Well?", "Well?"), ({"n": 1}, '{"n":1}')])
def test_the_input_is_the_prompt(input: Any, asked: str) -> None:
    _, events = simulate_flow(harness(turns({"text": "ok"})), flow_of(ours("model")), input)
    assert payloads_of(events, ev.ModelCall)[0].messages[0].parts[0].text == asked


def test_a_structured_answer_fits_its_schema() -> None:
    flow = flow_of(ours("model"), prompt="?", schema=FOUND)
    output, events = simulate_flow(harness(turns({"data": {"found": 3}})), flow)
    assert output["value"] == {"found": 3}
    assert payloads_of(events, ev.ModelCall)[0].schema == FOUND
    output, _ = simulate_flow(harness(turns({"text": '{"found": "three"}'})), flow)
    failure = output["failure"]
    assert (failure["code"], failure["retryable"]) == ("Provider.Call.Model.InvalidOutput", True)
    assert failure["details"]["text"] == '{"found": "three"}'
    assert output["metadata"]["turns"] == 1


CONVERSATION = turns(
    {"tool_calls": [{"tool": "search", "input": {"q": "a"}}, {"tool": "search", "input": {"q": "b"}}], "usage": USAGE},
    {"text": "done", "usage": USAGE},
    tools={"search": [{"output": {"hits": 1}}, {"output": {"hits": 2}}]},
)


def test_parameters_of_the_answer_apply_to_every_turn() -> None:
    flow = flow_of(ours("model"), prompt="Look.", tools=[SEARCH], max_output_tokens=50, temperature=0.5)
    _, events = simulate_flow(harness(CONVERSATION), flow)
    calls = payloads_of(events, ev.ModelCall)
    assert [(call.max_output_tokens, call.temperature) for call in calls] == [(50, 0.5)] * 2


def test_sampling_parameters_are_passed_on_in_every_turn() -> None:
    given: dict[str, Any] = {"top_p": 0.9, "top_k": 4, "seed": 7, "stop_sequences": ["END"]}
    flow = flow_of(ours("model"), prompt="Look.", tools=[SEARCH], **given)
    _, events = simulate_flow(harness(CONVERSATION), flow)
    calls = payloads_of(events, ev.ModelCall)
    assert [call.parameters for call in calls] == [given] * len(calls)
    assert len(calls) > 1


def test_a_model_works_with_tools_turn_by_turn() -> None:
    output, events = simulate_flow(harness(CONVERSATION), flow_of(ours("model"), prompt="Look.", tools=[SEARCH]))
    assert output["value"] == "done"
    assert output["metadata"]["tools"] == ["search", "search"]
    assert output["metadata"]["usage"]["input_tokens"] == 20
    assert [call.input for call in payloads_of(events, ev.ToolCall)] == [{"q": "a"}, {"q": "b"}]
    calls = [event for event in events if event.type == ev.NodeEnter.type and event.path == "main/a:call.model"]
    assert len(calls) == 1
    listings = [call for call in payloads_of(events, ev.EffectCall) if call.kind_ == "toolbox"]
    assert len(listings) == 1, "the toolbox is opened once for all turns"


def test_a_conversation_survives_a_crash_at_every_append() -> None:
    flow = flow_of(ours("model"), prompt="Look.", tools=[SEARCH])

    assert simulate_crashes(lambda log: harness(CONVERSATION, log), flow, "done") > 15


@pytest.mark.parametrize(
    ("script", "arguments", "code", "type", "retryable"),
    [
        (turns({"error": "overloaded"}), {}, "Unavailable", "error", True),
        (turns({"error": "rate_limited"}), {}, "Throttled", "error", True),
        (turns({"error": "timeout"}), {}, "Timeout", "timeout", True),
        (turns({"error": "refused"}), {}, "Refused", "error", False),
        (turns({"error": "auth"}), {}, "Failed", "error", False),
        (CONVERSATION, {"max_turns": 1, "tools": [SEARCH]}, "OutOfTurns", "error", None),
        (turns({"text": "x"}), {"schema": {"type": "nothing"}}, "InvalidOutput", "error", False),
    ],
)
def test_a_model_fails(
    script: dict[str, Any], arguments: dict[str, Any], code: str, type: str, retryable: bool | None
) -> None:
    output, _ = simulate_flow(harness(script), flow_of(ours("model"), **{"prompt": "?", **arguments}))
    failure = output["failure"]
    assert (failure["code"], failure["type"]) == (f"Provider.Call.Model.{code}", type)
    assert failure.get("retryable") is retryable


def test_a_toolbox_that_cannot_be_opened_is_a_failure() -> None:
    tools = [{"type": "nats", "subject": "x", "tools": [{"name": "t"}]}]
    output, _ = simulate_flow(harness(turns({"text": "x"})), flow_of(ours("model"), prompt="?", tools=tools))
    assert output["failure"]["code"] == "Provider.Call.Model.ToolsUnavailable"
    assert output["failure"]["details"]["code"] == "tool.unavailable"


# -- tools -------------------------------------------------------------------------------------------------------------


def scripted(*answers: dict[str, Any]) -> dict[str, Any]:
    return {"tools": {"search": list(answers)}}


def test_a_scripted_tool() -> None:
    flow = flow_of(ours("tool"), source=SEARCH, tool="search")
    output, events = simulate_flow(harness(scripted({"output": {"hits": 3}})), flow, {"q": "x"})
    assert output == {"value": {"hits": 3}, "metadata": {"tool": "search", "server": "script"}}
    [call] = payloads_of(events, ev.ToolCall)
    assert (call.tool, call.input) == ("search", {"q": "x"})
    assert [event.key for event in events if event.type == ev.ToolCall.type] == ["main/a:call.tool#1.1!tool.0.0"]


@pytest.mark.parametrize(
    ("script", "arguments", "code"),
    [
        (scripted({"error": {"message": "no", "code": "E7"}}), {}, "Failed"),
        (scripted({"output": 1}), {"arguments": {"q": 7}}, "InvalidInput"),
        (scripted({"output": 1}), {"tool": "seek"}, "UnknownTool"),
    ],
)
def test_a_tool_fails(script: dict[str, Any], arguments: dict[str, Any], code: str) -> None:
    flow = flow_of(ours("tool"), **{"source": SEARCH, "tool": "search", **arguments})
    output, _ = simulate_flow(harness(script), flow, {"q": "x"})
    assert output["failure"]["code"] == f"Provider.Call.Tool.{code}"


def test_a_tool_survives_a_crash_at_every_append() -> None:
    flow = flow_of(ours("tool"), source=SEARCH, tool="search")
    script = scripted({"output": {"hits": 3}})

    assert simulate_crashes(lambda log: harness(script, log), flow, {"hits": 3}, input={"q": "x"}) > 8


async def test_a_python_function() -> None:
    flow = flow_of(ours("tool"), python="statistics:fmean")
    output, _ = await played(harness({}), flow, {"data": [1, 2, 6]})
    assert output == {"value": 3.0, "metadata": {"tool": "fmean", "server": "python"}}


async def test_a_missing_python_function_is_a_failure() -> None:
    output, _ = await played(harness({}), flow_of(ours("tool"), python="statistics:no_such"), {})
    assert output["failure"]["code"] == "Provider.Call.Tool.Unavailable"


async def test_a_tool_of_an_mcp_server() -> None:
    server = {"type": "mcp", "name": "desk", "command": python(str(FIXTURES / "mcp_server.py"))}
    output, _ = await played(harness({}), flow_of(ours("tool"), source=server, tool="weather"), {"city": "Rome"})
    assert output == {"value": {"city": "Rome", "degrees": 21}, "metadata": {"tool": "weather", "server": "desk"}}
    output, _ = await played(
        harness({}), flow_of(ours("tool"), source=server, tool="refuse", arguments={"reason": "Sunday"})
    )
    assert (output["failure"]["code"], output["failure"]["message"]) == ("Provider.Call.Tool.Failed", "Sunday")


async def test_a_session_lasts_for_the_whole_conversation() -> None:
    server = {"type": "mcp", "name": "desk", "command": python(str(FIXTURES / "mcp_server.py"))}
    ask = {"tool": "pid", "input": {}}
    made = harness(turns({"tool_calls": [ask]}, {"tool_calls": [ask, ask]}, {"text": "done"}))
    output, events = await played(made, flow_of(ours("model"), prompt="?", tools=[server]))
    assert output["value"] == "done"
    found = [result.output["result"] for result in payloads_of(events, ev.ToolResult)]
    assert len(found) == 3
    assert len(set(found)) == 1, "one server for all turns"
