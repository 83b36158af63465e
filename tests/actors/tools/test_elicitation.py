"""Tools of MCP servers that ask for input before they answer: the run asks a person, and calls them again."""

import json
import os
from typing import Any

import pytest

from callboard.actors.tools.mcp import open_mcp
from callboard.actors.tools.tool import ROUNDS_MAX, ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus import events as ev
from callboard.bus.effects import McpTools
from callboard.bus.events import Event
from callboard.projections.trace.conversations import Conversations
from callboard.runtime.interpreter.elicitation import refusal, response_of
from tests.support.event_logs import known_payload
from tests.support.flow_providers import crashing_everywhere, flow_of, ours, played
from tests.support.flows import FlowTheatre
from tests.support.forks import python
from tests.support.places import TESTS
from tests.support.simulation import World

SERVER = python(str(TESTS / "fixtures" / "tools" / "mcp_asking_server.py"))
SOURCE: dict[str, Any] = {"type": "mcp", "name": "desk", "command": SERVER}
KEY = "main/a:call.tool#1.1!tool.0.0"
BOOKED = [{"action": "accept", "content": {"name": "Ada", "seats": 2}}]


def of_type(events: list[Event], payload: type[Any]) -> list[Any]:
    return [ev.payload_of(event) for event in events if event.type == payload.type]


def calling(tool: str, **source: Any) -> dict[str, Any]:
    return flow_of(ours("tool"), source={**SOURCE, **source}, tool=tool, arguments={})


def answers(**rounds: Any) -> World:
    return World(answers={f"{KEY}.ask.{name[1:].replace('_', '.')}": given for name, given in rounds.items()})


FORM = {"properties": {"name": {"type": "string"}, "seats": {"type": "integer", "minimum": 1}}, "required": ["name"]}
ONE = {"properties": {"seats": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "response", "expected"),
    [
        (FORM, {"name": "Ada"}, {"action": "accept", "content": {"name": "Ada"}}),
        (FORM, '{"name": "Ada", "seats": 2}', {"action": "accept", "content": {"name": "Ada", "seats": 2}}),
        (FORM, " Decline", {"action": "decline"}),
        (FORM, "cancel", {"action": "cancel"}),
        (FORM, {"seats": 0}, None),
        (FORM, "Ada", None),
        (ONE, "7", {"action": "accept", "content": {"seats": 7}}),
        (ONE, 7, {"action": "accept", "content": {"seats": 7}}),
        (None, "accept", {"action": "accept"}),
        (None, True, {"action": "accept"}),
        (None, "well", None),
    ],
)
def test_an_answer_fits_the_schema_or_declines(schema: Any, response: Any, expected: Any) -> None:
    assert (refusal(schema, response) is None) == (expected is not None)
    if expected is not None:
        assert response_of(schema, response) == expected


@pytest.mark.parametrize("scope", ["node", "run"])
async def test_a_tool_that_asks_gets_the_answers_of_a_person(scope: str) -> None:
    world = answers(r1_0=[{"name": "Ada", "seats": 2}], r2_0=["accept"])
    told, events = await played(FlowTheatre(), calling("book", scope=scope), world=world)
    known, last = json.loads(f"[{told['value'].replace(']', '],', 1)}]")
    assert (known, last) == (BOOKED, {"sure": {"action": "accept"}})
    first, second = of_type(events, ev.HumanAsked)
    assert (first.question, second.question) == ("For whom?", "Sure?")
    assert first.schema["required"] == ["name"]
    assert first.request_data["tool"] == "book"
    assert (second.interaction_type, second.options) == ("select", ["accept", "decline"])
    # The run was parked in between, without its server: the state was of another process.
    assert ev.RunParked.type in [event.type for event in events]
    calls = of_type(events, ev.ToolCall)
    assert [len(call.earlier) for call in calls] == [0, 0, 1]
    assert [result.error for result in of_type(events, ev.ToolResult)] == [None] * 3


async def test_a_person_may_decline_or_visit_a_page() -> None:
    told, _events = await played(FlowTheatre(), calling("agree"), world=answers(r1_0=["decline"]))
    assert json.loads(told["value"]) == {"ok": {"action": "decline"}}
    told, events = await played(FlowTheatre(), calling("visit"), world=answers(r1_0=["accept"]))
    assert json.loads(told["value"]) == {"page": {"action": "accept"}}
    [asked] = of_type(events, ev.HumanAsked)
    assert asked.question == "Visit\nhttps://example.com/pay"


async def test_what_nobody_can_be_asked_fails_by_name() -> None:
    told, events = await played(FlowTheatre(), calling("think"))
    [result] = of_type(events, ev.ToolResult)
    assert (result.error.code, result.asks) == ("tool.input_required", None)
    assert "asks for sampling/createMessage" in told["failure"]["message"]
    async with open_mcp(McpTools("desk", SERVER, timeout_s=60.0), ToolEnvironment(env=dict(os.environ))) as transport:
        with pytest.raises(ToolFailed) as caught:
            await transport.call(
                "forever", {}, ToolCallContext("r1", "a", "k", responses={}, earlier=[{}] * ROUNDS_MAX)
            )
    assert (caught.value.failure.code, caught.value.failure.details) == ("tool.input_required", None)


async def test_it_survives_a_crash_at_every_append() -> None:
    def check(told: dict[str, Any]) -> None:
        assert json.loads(told["value"]) == {"ok": {"action": "accept"}}

    world = answers(r1_0=["accept"])
    assert await crashing_everywhere(lambda log: FlowTheatre(log), calling("agree"), check, world=world) > 10


async def test_a_model_sees_the_result_of_the_last_call() -> None:
    script = {"turns": {"a": [{"tool_calls": [{"tool": "agree", "input": {}}]}, {"text": "fine"}]}}
    flow = flow_of(ours("model"), prompt="Go.", tools=[SOURCE])
    world = World(answers={"main/a:call.model#1.1!tool.1.0.ask.1.0": ["accept"]})
    told, events = await played(FlowTheatre(script=script), flow, world=world)
    assert told["value"] == "fine"
    conversations = Conversations()
    asked: list[Any] = []
    for event in events:
        payload = known_payload(event)
        conversations.apply(event, payload)
        if isinstance(payload, ev.ModelCall):
            asked.append(conversations.request_in(event))
    assert '"action": "accept"' in str(asked[-1]).replace("\\", "")
