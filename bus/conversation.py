"""Conversations: what a model is to see in full, put together from what the log records only once.

A call to a model records what is new in it. The rest is earlier: turns that it continues (``base``), results of nodes
that it quotes (`Recall`, `Former`), outputs of tools (`ToolOutput`).
"""

from functools import cached_property
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from callboard.bus.effects import Former, JsonSchema, Message, Part, Recall, Text, ToolOutput, ToolSpec, ToolUse
from callboard.bus.events import ModelCall, ModelResult, NodeExit, ToolResult


class Spoken(Protocol):
    """The model turns of one node execution and its tools' results, by effect key."""

    calls: dict[str, ModelCall]
    replies: dict[str, ModelResult]
    outputs: dict[str, ToolResult]


class Left:
    """The result of a node execution that is over, as later messages quote it; each JSON text is made once and kept."""

    def __init__(self, exit: NodeExit, name: str = "") -> None:
        self._name = name
        self._exit = exit
        self._texts: dict[tuple[str, bool], Text] = {}

    @cached_property
    def member(self) -> str:
        """What later nodes see of it, ``told`` or the ``data`` of its result, as one more member of a JSON object."""
        told = self._exit.told
        if told is None:
            result = self._exit.result
            told = result.get("data") if isinstance(result, dict) else None
        return f", {msgspec.json.encode(self._name).decode()}: {msgspec.json.encode(told).decode()}"

    def recalled(self, pointer: str, *, plain: bool = False) -> Text:
        """Return the JSON text of what a pointer (RFC 6901) finds in the payload of the node's exit.

        ``plain``: of a string the string itself.
        """
        text = self._texts.get((pointer, plain))
        if text is None:
            value = _pointed(msgspec.to_builtins(self._exit), pointer)
            text = Text(value if plain and isinstance(value, str) else msgspec.json.encode(value).decode())
            self._texts[pointer, plain] = text
        return text


def _pointed(document: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document


class Memory:
    """The results of a run's nodes: ``exits`` all, by ``path#iteration``; ``told`` the newest of each, by its name."""

    def __init__(self) -> None:
        self.exits: dict[str, Left] = {}
        self.told: dict[str, Left] = {}

    def keep(self, place: str, name: str, exit: NodeExit) -> None:
        """Keep what the node of a name leaves; ``place`` is the execution, ``path#iteration``."""
        self.exits[place] = self.told[name] = Left(exit, name)


class Request(Struct, frozen=True):
    """The whole request of a turn; a turn that continues others has what was said at their beginning."""

    messages: list[Message]
    system: str
    tools: list[ToolSpec]
    schema: JsonSchema | None


def request_of(spoken: Spoken, key: str, memory: Memory) -> Request:
    """Put a turn together: earlier turns, recalled values, tool outputs."""
    chain = [key]
    while (base := spoken.calls[chain[-1]].base) is not None:
        chain.append(base)
    messages = [message for link in reversed(chain) for message in news_of(spoken, link, memory)]
    call, first = spoken.calls[key], spoken.calls[chain[-1]]
    return Request(messages, call.system or first.system, call.tools or first.tools, call.schema or first.schema)


def news_of(spoken: Spoken, key: str, memory: Memory) -> list[Message]:
    """Return what a turn has that the one before it had not: what was said to that, and what is asked now."""
    call = spoken.calls[key]
    messages = [said(spoken.replies[call.base])] if call.base is not None else []
    for message in call.messages:
        messages.append(Message(message.role, [_part(part, spoken, memory) for part in message.parts]))
    return messages


def said(reply: ModelResult) -> Message:
    """Return what a model said as a message of the turns that go on from there."""
    parts: list[Part] = [Text(reply.text)] if reply.text else []
    parts += reply.tool_calls
    return Message("assistant", parts or [Text("")])


def _part(part: Part, spoken: Spoken, memory: Memory) -> Part:
    match part:
        case Text() | ToolUse():
            return part
        case Recall(of=of, at=at, plain=plain):
            return memory.exits[of].recalled(at, plain=plain)
        case Former():
            return Text("".join([left.member for left in memory.told.values()]))
        case ToolOutput(id=call_id, of=of):
            result = spoken.outputs[of] if of is not None else None
            return part if result is None else ToolOutput(call_id, None, result.output, result.error)
