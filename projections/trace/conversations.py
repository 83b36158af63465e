"""Conversations: the whole requests to a run's models, rebuilt from events that hold only the new messages."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from callboard.bus.conversation import (
    NodeResults,
    QuotedResult,
    RecordedTurns,
    TurnRequest,
    assemble_request,
    new_messages,
)
from callboard.bus.effects import Message
from callboard.bus.events import Event, ModelCall, ModelResult, NodeEnter, NodeExit, Payload, ToolResult
from callboard.bus.paths import call_key
from callboard.projections.trace.node_tree import NodeExecution

T = TypeVar("T")


class _Spoken(Struct):
    calls: dict[str, ModelCall] = field(default_factory=dict[str, ModelCall])
    replies: dict[str, ModelResult] = field(default_factory=dict[str, ModelResult])
    outputs: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])


class Conversations:
    """Folds one run. `request_in` and `news` are about the call that was folded last."""

    def __init__(self) -> None:
        self._memory = NodeResults()
        self._entered: dict[NodeExecution, NodeEnter] = {}
        self._spoken: dict[NodeExecution, _Spoken] = {}

    def apply(self, event: Event, payload: Payload) -> None:
        """Take the next event."""
        place = NodeExecution(event.path, event.iteration)
        match payload:
            case NodeEnter():
                self._entered[place] = payload
            case NodeExit():
                self._leave(place, payload)
            case ModelCall():
                self._of(place).calls[event.key] = payload
            case ModelResult():
                self._of(place).replies[event.key] = payload
            case ToolResult():
                self._of(place).outputs[call_key(event.key)] = payload
            case _:
                pass

    def request_in(self, event: Event) -> TurnRequest | None:
        """Return the whole request of a ``model.call``; None if it refers to messages that this log does not have."""
        return self._resolve(assemble_request, event)

    def news(self, event: Event) -> list[Message] | None:
        """Return the messages that a ``model.call`` adds to the turn it continues, including that turn's answer.

        None in the same cases as `request_in`.
        """
        return self._resolve(new_messages, event)

    def _resolve(self, resolve: Callable[[RecordedTurns, str, NodeResults], T], event: Event) -> T | None:
        try:
            return resolve(self._of(NodeExecution(event.path, event.iteration)), event.key, self._memory)
        except (LookupError, TypeError, ValueError):
            return None

    def _of(self, place: NodeExecution) -> _Spoken:
        return self._spoken.setdefault(place, _Spoken())

    def _leave(self, place: NodeExecution, exit: NodeExit) -> None:
        self._spoken.pop(place, None)
        entered = self._entered.pop(place, None)
        if entered is not None and entered.kind_ == "node":
            self._memory.keep(str(place), entered.node, exit)
        else:
            self._memory.exits[str(place)] = QuotedResult(exit)
