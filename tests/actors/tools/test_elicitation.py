"""An MCP tool asks for input before it answers: the run asks a person and calls the tool again."""

import json
import os
from typing import Any

import pytest

from callboard.actors.tools.mcp import open_mcp
from callboard.actors.tools.tool import ROUNDS_MAX, ToolCallContext, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.effects import McpTools
from callboard.bus.events import Event
from callboard.projections.trace.conversations import Conversations
from callboard.runtime.interpreter.elicitation import refusal, response_of
from tests.support.event_logs import known_payload
from tests.support.failures import tool_failure
from tests.support.flow_providers import crashing_everywhere, flow_of, ours, played
from tests.support.flows import FlowTheatre
from tests.support.forks import python
from tests.support.places import TESTS
from tests.support.simulation import World

SERVER = python(str(TESTS / "fixtures" / "tools" / "mcp_asking_server.py"))
SOURCE: dict[str, Any] = {"type": "mcp", "name": "desk", "command": SERVER}
KEY = "main/a:call.tool#1.1!tool.0.0"
BOOKED = [{"action": "accept", "content": {"name": "Ada", "seats": 2}}]


def payloads_of(events: list[Event], payload: type[Any]) -> list[Any]:
    return [ev.payload_of(event) for event in events if event.type == payload.type]


def flow_calling(tool: str, **source: Any) -> dict[str, Any]:
    return flow_of(ours("tool"), source={**SOURCE, **source}, tool=tool, arguments={})


def world_answering(answer: str) -> World:
    return World(answers={f"{KEY}.ask.1.0": [answer]})


FORM = {"properties": {"name": {"type": "string"}, "seats": {"type": "integer", "minimum": 1}}, "required": ["name"]}
ONE_FIELD = {"properties": {"seats": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "response", "expected"),
    [
        (FORM, {"name": "Ada"}, {"action": "accept", "content": {"name": "Ada"}}),
        (FORM, '{"name": "Ada", "seats": 2}', {"action": "accept", "content": {"name": "Ada", "seats": 2}}),
        (FORM, " Decline", {"action": "decline"}),
        (FORM, "cancel", {"action": "cancel"}),
        (FORM, {"seats": 0}, None),
        (FORM, "Ada", None),
        (ONE_FIELD, "7", {"action": "accept", "content": {"seats": 7}}),
        (ONE_FIELD, 7, {"action": "accept", "content": {"seats": 7}}),
        (None, "accept", {"action": "accept"}),
        (None, True, {"action": "accept"}),
        (None, "well", None),
    ],
)
def test_an_answer_must_fit_the_schema_or_decline(schema: Any, response: Any, expected: Any) -> None:
    assert (refusal(schema, response) is None) == (expected is not None)
    if expected is not None:
        assert response_of(schema, response) == expected


@pytest.mark.parametrize("scope", ["node", "run"])
async def test_a_tool_that_asks_gets_the_answers_of_the_person(scope: str) -> None:
    world = World(answers={f"{KEY}.ask.1.0": [{"name": "Ada", "seats": 2}], f"{KEY}.ask.2.0": ["accept"]})
    outcome, events = await played(FlowTheatre(), flow_calling("book", scope=scope), world=world)
    known, last = json.loads(f"[{outcome['value'].replace(']', '],', 1)}]")
    assert (known, last) == (BOOKED, {"sure": {"action": "accept"}})
    first, second = payloads_of(events, ev.HumanAsked)
    assert (first.question, second.question) == ("For whom?", "Sure?")
    assert first.schema["required"] == ["name"]
    assert first.request_data["tool"] == "book"
    assert (second.interaction_type, second.options) == ("select", ["accept", "decline"])
    # The run was parked in between, so another process of the server answered the second call.
    assert ev.RunParked.type in [event.type for event in events]
    calls = payloads_of(events, ev.ToolCall)
    assert [len(call.earlier) for call in calls] == [0, 0, 1]
    assert [result.error for result in payloads_of(events, ev.ToolResult)] == [None] * 3


async def test_a_person_may_decline_or_visit_a_page() -> None:
    outcome, _events = await played(FlowTheatre(), flow_calling("agree"), world=world_answering("decline"))
    assert json.loads(outcome["value"]) == {"ok": {"action": "decline"}}
    outcome, events = await played(FlowTheatre(), flow_calling("visit"), world=world_answering("accept"))
    assert json.loads(outcome["value"]) == {"page": {"action": "accept"}}
    [asked] = payloads_of(events, ev.HumanAsked)
    assert asked.question == "Visit\nhttps://example.com/pay"


async def test_a_request_that_people_cannot_answer_fails_the_call() -> None:
    outcome, events = await played(FlowTheatre(), flow_calling("think"))
    [result] = payloads_of(events, ev.ToolResult)
    assert (result.error.code, result.asks) == ("tool.input_required", None)
    assert "asks for sampling/createMessage" in outcome["failure"]["message"]
    async with open_mcp(McpTools("desk", SERVER, timeout_s=60.0), ToolEnvironment(env=dict(os.environ))) as transport:
        context = ToolCallContext("r1", "a", "k", responses={}, earlier=[{}] * ROUNDS_MAX)
        found = await tool_failure(transport.call("forever", {}, context))
    assert (found.code, found.details) == ("tool.input_required", None)


async def test_an_asking_tool_survives_a_crash_at_every_append() -> None:
    def check(outcome: dict[str, Any]) -> None:
        assert json.loads(outcome["value"]) == {"ok": {"action": "accept"}}

    appends = await crashing_everywhere(FlowTheatre, flow_calling("agree"), check, world=world_answering("accept"))
    assert appends > 10


async def test_a_model_gets_the_result_of_the_last_call() -> None:
    script = {"turns": {"a": [{"tool_calls": [{"tool": "agree", "input": {}}]}, {"text": "fine"}]}}
    flow = flow_of(ours("model"), prompt="Go.", tools=[SOURCE])
    world = World(answers={"main/a:call.model#1.1!tool.1.0.ask.1.0": ["accept"]})
    outcome, events = await played(FlowTheatre(script=script), flow, world=world)
    assert outcome["value"] == "fine"
    conversations = Conversations()
    asked: list[Any] = []
    for event in events:
        payload = known_payload(event)
        conversations.apply(event, payload)
        if isinstance(payload, ev.ModelCall):
            asked.append(conversations.request_in(event))
    assert '"action": "accept"' in str(asked[-1]).replace("\\", "")
