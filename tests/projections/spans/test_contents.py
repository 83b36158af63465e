"""Contents of spans: requests and replies of models, and the omission of those that are too large."""

import json
from typing import Any

import msgspec
import pytest

from callboard.bus.effects import Choice, Failure, Message, Part, Recall, Text, ToolOutput, ToolSpec, ToolUse, user
from callboard.bus.events import (
    ChildEnd,
    ChildStart,
    EffectCall,
    EffectResult,
    Event,
    ModelCall,
    ModelResult,
    RunEnd,
    RunStart,
    ToolCall,
    ToolResult,
    decode_event,
)
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Span
from callboard.projections.spans.span_content import CONTENT_CHARS_MAX
from callboard.runtime.interpreter.replay import read_admission
from callboard.service.operations.model_requests import reconstruct_request
from tests.maintenance.record_golden import golden_lines
from tests.projections.spans.test_spans import named, spans_of
from tests.support.event_logs import Log


def read_attribute(span: Span, name: str) -> Any:
    return json.loads(str(span.attributes[name]))


def chats(events: list[Event]) -> dict[int, Span]:
    """Return the spans of model turns by the numbers of their calls."""
    log = Log()
    log.events = events
    spans = spans_of(log, content=True)
    return {int(str(span.attributes[semconv.FIRST_N])): span for span in spans if span.name.startswith("chat ")}


def in_conventions(messages: list[Message]) -> list[dict[str, Any]]:
    """Convert messages to the form of the conventions, in a simple way."""
    converted: list[dict[str, Any]] = []
    for message in messages:
        rest: list[dict[str, Any]] = []
        for part in message.parts:
            match part:
                case Text(text) if rest and "content" in rest[-1]:
                    rest[-1]["content"] += text
                case Text(text):
                    rest.append({"type": "text", "content": text})
                case ToolUse(id, tool, input):
                    rest.append({"type": "tool_call", "id": id, "name": tool, "arguments": input})
                case ToolOutput(id, output=output, error=error):
                    response = {"error": error.message or error.code} if error else output
                    answer = {"type": "tool_call_response", "id": id, "response": response}
                    converted.append({"role": "tool", "parts": [answer]})
                case _:
                    pytest.fail(f"{part} is not resolved")
        converted += [{"role": message.role, "parts": rest}] if rest else []
    return converted


@pytest.mark.parametrize("name", ["incident-triage", "bake", "playbook", "killed-worker"])
def test_spans_contain_the_requests_to_models(name: str) -> None:
    events = [decode_event(line) for line in golden_lines(name)]
    ref, admission = RunRef("acme", events[0].run), read_admission(events[0], language)
    found = chats(events)
    assert len(found) > 1
    for n, span in found.items():
        saw = reconstruct_request(ref, events[:n], admission, {}, None)
        assert saw is not None
        assert read_attribute(span, semconv.INPUT_MESSAGES) == in_conventions([said.message for said in saw.messages])
        system = [{"type": "text", "content": saw.system}] if saw.system else None
        assert (read_attribute(span, semconv.SYSTEM_INSTRUCTIONS) if system else None) == system
        tools = [tool["name"] for tool in json.loads(str(span.attributes.get(semconv.TOOL_DEFINITIONS, "[]")))]
        assert tools == [tool.name for tool in saw.tools]


def test_every_turn_contains_the_whole_conversation() -> None:
    log = Log().started()
    log.enter("a")
    search = ToolSpec("search", "Searches.", {"type": "object"})
    asked = ModelCall("turn", "anthropic:opus", "1", "anthropic", None, "Be kind.", [user("Where?")], [search])
    log.add(asked, "a", 1, 1, "turn.1")
    log.add(ModelResult(text="I look.", tool_calls=[ToolUse("c", "search", {"q": 1})]), "a", 1, 1, "turn.1")
    results = {"c": ToolResult("a", "search", {"hits": 2}), "d": ToolResult("a", "search", error=Failure("x", "down"))}
    for call, result in results.items():
        log.add(ToolCall("a", "search", {"q": 1}, call), "a", 1, 1, f"tool.{call}")
        log.add(result, "a", 1, 1, f"tool.{call}")
    outputs = [ToolOutput(one, of=f"a#1.1!tool.{one}") for one in "cd"]
    base = "a#1.1!turn.1"
    more = [Message("user", [*outputs, Text("Go on.")])]
    log.add(ModelCall("turn", "anthropic:opus", "2", "anthropic", base, messages=more), "a", 1, 1, "turn.2")
    log.add(ModelResult(data={"there": True}, stop_reason="end_turn"), "a", 1, 1, "turn.2")
    log.exit("a", result={"there": True})
    _, second = chats(log.events).values()
    assert read_attribute(second, semconv.INPUT_MESSAGES) == [
        {"role": "user", "parts": [{"type": "text", "content": "Where?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "c", "name": "search", "arguments": {"q": 1}},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": {"hits": 2}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "d", "response": {"error": "down"}}]},
        {"role": "user", "parts": [{"type": "text", "content": "Go on."}]},
    ]
    assert read_attribute(second, semconv.SYSTEM_INSTRUCTIONS) == [{"type": "text", "content": "Be kind."}]
    assert [tool["parameters"] for tool in read_attribute(second, semconv.TOOL_DEFINITIONS)] == [{"type": "object"}]
    assert read_attribute(second, semconv.OUTPUT_MESSAGES) == [
        {"role": "assistant", "parts": [{"type": "text", "content": '{"there":true}'}], "finish_reason": "end_turn"}
    ]


def test_the_oldest_messages_are_omitted_whole() -> None:
    log = Log().started()
    said = [user(f"{number} {'x' * (CONTENT_CHARS_MAX // 4)}") for number in range(6)]
    log.add(ModelCall("turn", "m", "1", messages=said), "a", 1, 1, "turn.1")
    log.add(ModelResult(text="y" * CONTENT_CHARS_MAX), "a", 1, 1, "turn.1")
    (chat,) = chats(log.events).values()
    kept = read_attribute(chat, semconv.INPUT_MESSAGES)
    assert [message["parts"][0]["content"][0] for message in kept] == ["3", "4", "5"]
    assert all(len(message["parts"][0]["content"]) == CONTENT_CHARS_MAX // 4 + 2 for message in kept)
    assert chat.attributes[f"callboard.omitted.{semconv.INPUT_MESSAGES}"] == 3
    assert semconv.OUTPUT_MESSAGES not in chat.attributes
    assert chat.attributes[f"callboard.omitted.{semconv.OUTPUT_MESSAGES}"] == 1


@pytest.mark.parametrize(
    "part", [Recall("gone#1", "/result"), Recall("a#1", "/no/such/place"), ToolOutput("c", of="a#1.1!tool.9")]
)
def test_a_message_with_an_unresolved_part_is_omitted(part: Part) -> None:
    log = Log().started()
    log.enter("a")
    log.exit("a", result={"data": 1})
    log.add(ModelCall("turn", "m", "1", messages=[Message("user", [part])]), "b", 1, 1, "turn.1")
    log.add(ModelResult(text="ok"), "b", 1, 1, "turn.1")
    (chat,) = chats(log.events).values()
    assert semconv.INPUT_MESSAGES not in chat.attributes
    assert chat.attributes[f"callboard.omitted.{semconv.INPUT_MESSAGES}"] == 1
    assert read_attribute(chat, semconv.OUTPUT_MESSAGES)[0]["parts"] == [{"type": "text", "content": "ok"}]


def test_a_value_that_is_too_large_is_omitted() -> None:
    log = Log().started()
    log.tool("a", output="x" * CONTENT_CHARS_MAX)
    (tool,) = spans_of(log, content=True)
    assert semconv.TOOL_CALL_RESULT not in tool.attributes
    assert tool.attributes[f"callboard.omitted.{semconv.TOOL_CALL_RESULT}"] == 1


def test_the_root_has_input_and_output_of_the_run() -> None:
    log = Log()
    log.accepted()
    log.add(RunStart("w", {"q": 1}, {"limit": 5}))
    log.add(RunEnd("completed", "done"))
    (root,) = spans_of(log, content=True)
    assert read_attribute(root, semconv.INPUT_VALUE) == {"input": {"q": 1}, "arguments": {"limit": 5}}
    assert root.attributes[semconv.INPUT_MIME_TYPE] == "application/json"
    assert (root.attributes[semconv.OUTPUT_VALUE], root.attributes[semconv.OUTPUT_MIME_TYPE]) == ("done", "text/plain")
    assert read_attribute(root, semconv.OUTPUT_MESSAGES)[0]["parts"] == [{"type": "text", "content": "done"}]
    assert read_attribute(root, semconv.INPUT_MESSAGES)[0]["role"] == "user"


def test_other_spans_have_input_output_and_choices() -> None:
    log = Log().started()
    log.enter("a")
    choices = [Choice("b", "if it rains")]
    log.add(ModelCall("route", "m", "1", messages=[user("?")], choices=choices), "a", 1, 1, "route")
    log.add(ModelResult(error=Failure("model.timeout")), "a", 1, 1, "route")
    log.add(EffectCall("code", None, {"source": "1"}), "a", 1, 1, "code")
    log.add(EffectResult([1]), "a", 1, 1, "code")
    log.add(ChildStart({"name": "sub"}, "child-0", {"x": 1}), "a", 1, 1, "child")
    log.add(ChildEnd("completed", 2), "a", 1, 1, "child")
    log.exit("a", result={"data": 3})
    chat, code, child, node = spans_of(log, content=True)
    assert read_attribute(chat, semconv.MODEL_CHOICES) == [{"id": "b", "description": "if it rains"}]
    assert semconv.OUTPUT_MESSAGES not in chat.attributes
    assert (read_attribute(code, semconv.INPUT_VALUE), read_attribute(code, semconv.OUTPUT_VALUE)) == (
        {"source": "1"},
        [1],
    )
    assert (read_attribute(child, semconv.INPUT_VALUE), read_attribute(child, semconv.OUTPUT_VALUE)) == ({"x": 1}, 2)
    assert (node.attributes[semconv.INPUT_VALUE], read_attribute(node, semconv.OUTPUT_VALUE)) == ("Do a.", {"data": 3})


@pytest.mark.parametrize(
    ("said", "captures"),
    [
        ("true", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
        ("EVENT_ONLY", False),
        ("false", False),
        ("", False),
    ],
)
def test_the_variable_of_the_conventions_enables_contents(said: str, captures: bool) -> None:
    assert semconv.captures_content({semconv.CAPTURE_CONTENT: said}) is captures
    assert semconv.captures_content({}) is False


def test_contents_are_omitted_by_default() -> None:
    events = [decode_event(line) for line in golden_lines("incident-triage")]
    log = Log()
    log.events = events
    names = {name for span in spans_of(log) for name in span.attributes}
    assert not names & {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE}
    assert len(msgspec.json.encode(spans_of(log))) < len(msgspec.json.encode(spans_of(log, content=True))) / 2
    assert named(spans_of(log, content=True), "invoke_workflow incident-triage")
