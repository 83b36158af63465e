"""Contents of spans, exported on request: whole conversations as the models received them, inputs and outputs.

Messages have the form of the GenAI conventions: a role and typed parts, as JSON. Each output of a tool is a separate
message, because some backends show only one output per message. If an attribute is too large, whole messages are left
out, the oldest first, and the span says which attribute is incomplete.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from callboard.bus import events as ev
from callboard.bus.conversation import reply_message
from callboard.bus.effects import Choice, Message, Text, ToolOutput, ToolSpec, ToolUse
from callboard.bus.events import Event, Payload
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Attribute, as_text
from callboard.projections.trace.conversations import Conversations

CONTENT_CHARS_MAX = 128 * 1024
"""The maximum number of characters of content in one attribute. Messages beyond that are left out."""

Attributes = dict[str, Attribute | None]


class Contents:
    """Folds one run. `of` returns the contents of an event as attributes of the span that it opens or closes."""

    def __init__(self) -> None:
        self._conversations = Conversations()

    def of(self, event: Event, payload: Payload) -> Attributes:
        """Apply the next event. Return its contents."""
        self._conversations.apply(event, payload)
        match payload:
            case ev.NodeEnter():
                return _input(payload.instruction if payload.input is None else payload.input)
            case ev.NodeExit():
                return _output(payload.result)
            case ev.ModelCall():
                return self._describe_call(event, payload)
            case ev.ModelResult():
                return _describe_reply(payload)
            case ev.ToolCall():
                return _value(semconv.TOOL_CALL_ARGUMENTS, payload.input)
            case ev.ToolResult():
                return _value(semconv.TOOL_CALL_RESULT, payload.output) if payload.error is None else {}
            case ev.RunStart():
                given = {"input": payload.input, "arguments": payload.arguments} if payload.arguments else payload.input
                told = [] if given is None else [_text_message("user", given)]
                return {**_input(given), **_messages(semconv.INPUT_MESSAGES, told)}
            case ev.RunEnd():
                replied = {**_text_message("assistant", payload.output), "finish_reason": "stop"}
                told = [] if payload.output is None else [replied]
                return {**_output(payload.output), **_messages(semconv.OUTPUT_MESSAGES, told)}
            case ev.EffectCall():
                return _input(payload.request)
            case ev.EffectResult():
                return _output(payload.value)
            case ev.ChildStart():
                return _input(payload.input)
            case ev.ChildEnd():
                return _output(payload.output)
            case _:
                return {}

    def _describe_call(self, event: Event, call: ev.ModelCall) -> Attributes:
        request = self._conversations.request_in(event)
        if request is None:
            return _mark_omitted(semconv.INPUT_MESSAGES, len(call.messages))
        system = [{"type": "text", "content": request.system}] if request.system else []
        return {
            **_messages(semconv.SYSTEM_INSTRUCTIONS, system),
            **_messages(semconv.INPUT_MESSAGES, _convert_messages(request.messages)),
            **_messages(semconv.TOOL_DEFINITIONS, [_tool(spec) for spec in request.tools]),
            **_messages(semconv.MODEL_CHOICES, [_choice(choice) for choice in call.choices]),
        }


def _describe_reply(reply: ev.ModelResult) -> Attributes:
    if reply.error is not None:
        return {}
    message = reply_message(reply)
    if reply.data is not None and not reply.text:
        message = Message("assistant", [Text(as_text(reply.data)), *reply.tool_calls])
    reason = reply.stop_reason or ("tool_call" if reply.tool_calls else "stop")
    return _messages(semconv.OUTPUT_MESSAGES, [{**_message(message.role, message.parts), "finish_reason": reason}])


def _convert_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert messages to the form of the conventions. Outputs of tools have the role ``tool``."""
    told: list[dict[str, Any]] = []
    for message in messages:
        outputs = [part for part in message.parts if isinstance(part, ToolOutput)]
        rest = [part for part in message.parts if not isinstance(part, ToolOutput)]
        told += [_message("tool", [output]) for output in outputs]
        told += [_message(message.role, rest)] if rest else []
    return told


def _message(role: str, parts: Sequence[Any]) -> dict[str, Any]:
    """Return a message. Consecutive texts are joined, because quoted values were only recorded separately."""
    told: list[dict[str, Any]] = []
    for part in map(_part, parts):
        if told and told[-1]["type"] == part["type"] == "text":
            told[-1]["content"] += part["content"]
        else:
            told.append(part)
    return {"role": role, "parts": told}


def _part(part: Any) -> dict[str, Any]:
    match part:
        case ToolUse():
            return {"type": "tool_call", "id": part.id, "name": part.tool, "arguments": part.input}
        case ToolOutput():
            response = part.output if part.error is None else {"error": part.error.message or part.error.code}
            return {"type": "tool_call_response", "id": part.id, "response": response}
        case _:
            return {"type": "text", "content": part.text}


def _text_message(role: str, value: Any) -> dict[str, Any]:
    return _message(role, [Text(value if isinstance(value, str) else as_text(value))])


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "name": spec.name, "description": spec.description, "parameters": spec.input_schema}


def _choice(choice: Choice) -> dict[str, Any]:
    return {"id": choice.id, "description": choice.description}


def _messages(name: str, messages: Sequence[dict[str, Any]]) -> Attributes:
    """Return messages as one attribute: the latest ones that fit."""
    texts: list[str] = []
    room = CONTENT_CHARS_MAX
    for message in reversed(messages):
        text = as_text(message)
        room -= len(text) + 1
        if room < 0:
            break
        texts.append(text)
    kept: Attributes = {name: f"[{','.join(reversed(texts))}]"} if texts else {}
    return kept | _mark_omitted(name, len(messages) - len(texts))


def _input(value: Any) -> Attributes:
    return _value(semconv.INPUT_VALUE, value, semconv.INPUT_MIME_TYPE)


def _output(value: Any) -> Attributes:
    return _value(semconv.OUTPUT_VALUE, value, semconv.OUTPUT_MIME_TYPE)


def _value(name: str, value: Any, mime_type: str = "") -> Attributes:
    """Return a value as an attribute in JSON. A text is unquoted if ``mime_type`` names an attribute for its type."""
    if value is None:
        return {}
    plain = mime_type != "" and isinstance(value, str)
    text = value if plain else as_text(value)
    if len(text) > CONTENT_CHARS_MAX:
        return _mark_omitted(name, 1)
    kind: Attributes = {mime_type: "text/plain" if plain else "application/json"} if mime_type else {}
    return {name: text, **kind}


def _mark_omitted(name: str, count: int) -> Attributes:
    return {f"{semconv.OMITTED}.{name}": count} if count else {}
