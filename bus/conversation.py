"""Conversations: complete requests to a model, assembled from values that the log records only once.

A recorded model call contains only its new messages. It refers to earlier events for the rest: the turns that it
continues (``base``), the results of nodes that it quotes (`Recall`, `Former`), and the outputs of tools (`ToolOutput`).
"""

from functools import cached_property
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callboard.bus.effects import Former, Message, Part, Recall, Text, ToolOutput, ToolSpec, ToolUse
from callboard.bus.events import ModelCall, ModelResult, NodeExit, ToolResult
from callboard.lib.json_types import JsonSchema


class RecordedTurns(Protocol):
    """The model turns of one node execution and its tools' results, by effect key."""

    calls: dict[str, ModelCall]
    replies: dict[str, ModelResult]
    outputs: dict[str, ToolResult]


class QuotedResult:
    """The result of a finished node execution, as later messages quote it. JSON texts are encoded once and cached."""

    def __init__(self, exit: NodeExit, name: str = "") -> None:
        self._name = name
        self._exit = exit
        self._texts: dict[tuple[str, bool], Text] = {}

    @cached_property
    def member(self) -> str:
        """The part that later nodes see, as a member of a JSON object: ``told``, or the ``data`` of the result."""
        told = self._exit.told
        if told is None:
            result = self._exit.result
            told = result.get("data") if isinstance(result, dict) else None
        return f", {msgspec.json.encode(self._name).decode()}: {msgspec.json.encode(told).decode()}"

    def recall(self, pointer: str, *, plain: bool = False) -> Text:
        """Return the JSON text of the value at a pointer (RFC 6901) in the payload of the node's exit.

        With ``plain`` a string is returned as it is, without quotes.
        """
        text = self._texts.get((pointer, plain))
        if text is None:
            value = _resolve_pointer(msgspec.to_builtins(self._exit), pointer)
            text = Text(value if plain and isinstance(value, str) else msgspec.json.encode(value).decode())
            self._texts[pointer, plain] = text
        return text


def _resolve_pointer(document: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document


class NodeResults:
    """The results of a run's nodes: ``exits`` are all, by ``path#iteration``; ``told`` the newest of each, by name."""

    def __init__(self) -> None:
        self.exits: dict[str, QuotedResult] = {}
        self.told: dict[str, QuotedResult] = {}

    def keep(self, place: str, name: str, exit: NodeExit) -> None:
        """Keep the result of a node; ``place`` is the execution, ``path#iteration``."""
        self.exits[place] = self.told[name] = QuotedResult(exit, name)


class TurnRequest(Struct, frozen=True):
    """The complete request of a turn. A turn that continues others takes system, tools and schema from the first one
    unless it has its own, or tools from the last one before it that is ``retooled``."""

    messages: list[Message]
    system: str
    tools: list[ToolSpec]
    schema: JsonSchema | None


def assemble_request(spoken: RecordedTurns, key: str, memory: NodeResults) -> TurnRequest:
    """Assemble the request of a turn from earlier turns, recalled values and tool outputs."""
    chain = [key]
    while (base := spoken.calls[chain[-1]].base) is not None:
        chain.append(base)
    asked = spoken.calls[key].provider
    messages = [message for link in reversed(chain) for message in new_messages(spoken, link, memory, asked)]
    call, first = spoken.calls[key], spoken.calls[chain[-1]]
    standing = next((spoken.calls[link] for link in chain if spoken.calls[link].retooled), first)
    return TurnRequest(messages, call.system or first.system, call.tools or standing.tools, call.schema or first.schema)


def new_messages(spoken: RecordedTurns, key: str, memory: NodeResults, asked: str = "") -> list[Message]:
    """Return the messages that a turn adds to the previous one: the reply to the previous one, and the new messages.

    The reply has what its provider attached to it if the provider that is ``asked`` is the same, or is not known.
    """
    call = spoken.calls[key]
    messages = [_to_message(spoken.replies[call.base], asked)] if call.base is not None else []
    for message in call.messages:
        messages.append(Message(message.role, [_part(part, spoken, memory) for part in message.parts]))
    return messages


def reply_message(reply: ModelResult) -> Message:
    """Return a model's reply as a message for the turns that continue from it."""
    parts: list[Part] = [Text(reply.text)] if reply.text else []
    parts += reply.tool_calls
    return Message("assistant", parts or [Text("")])


def _to_message(reply: ModelResult, asked: str) -> Message:
    """Return a reply as a message for the provider that is ``asked``."""
    message = reply_message(reply)
    if not (asked and reply.provider) or asked == reply.provider:
        return replace(message, thought=reply.thought)
    return replace(
        message, parts=[replace(part, thought="") if isinstance(part, ToolUse) else part for part in message.parts]
    )


def _part(part: Part, spoken: RecordedTurns, memory: NodeResults) -> Part:
    match part:
        case Text() | ToolUse():
            return part
        case Recall(of=of, at=at, plain=plain):
            return memory.exits[of].recall(at, plain=plain)
        case Former():
            return Text("".join([left.member for left in memory.told.values()]))
        case ToolOutput(id=call_id, of=of):
            result = spoken.outputs[of] if of is not None else None
            return part if result is None else ToolOutput(call_id, None, result.output, result.error)
