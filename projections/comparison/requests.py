"""Requests of effects, in a form in which equal requests of two runs are equal, wherever in the runs they are made.

A request is the whole message to a model, the name and the input of a tool, or the kind and content of another effect.
The place that makes it, its id and its number in a conversation are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from callboard.bus.conversation import TurnRequest
from callboard.bus.events import (
    EffectCall,
    EffectResult,
    Event,
    ModelCall,
    ModelResult,
    Payload,
    ToolCall,
    ToolResult,
)
from callboard.lib.canonical_json import digest
from callboard.projections.projection import known_payload
from callboard.projections.trace.conversations import Conversations

Done = ModelResult | ToolResult | EffectResult


class RecordedEffect(Struct, frozen=True):
    """An effect that has ended: its key, the digest of its request, its outcome and the outcome's event number."""

    key: str
    request: str
    outcome: Done
    n: int


def turn_digest(call: ModelCall, request: TurnRequest | Any) -> str:
    """Return the digest of a model turn; ``request`` has its messages, system, tools and schema in full."""
    told = (call.purpose, call.model, call.provider, call.evaluator, call.choices)
    bounds = (call.max_output_tokens, call.temperature, call.parameters)
    return digest("model", told, bounds, request.system, request.messages, request.tools, request.schema)


def call_digest(call: ToolCall | EffectCall) -> str:
    """Return the digest of any other effect."""
    match call:
        case ToolCall():
            again = (call.responses, call.state, call.earlier)
            return digest("tool", call.tool, call.own_name, call.server, call.via, call.input, again)
        case EffectCall():
            return digest("effect", call.kind_, call.request)


def name_of_call(call: Payload) -> str:
    """Return the name by which a policy finds a call: of the tool, step or provider, or else the kind of effect."""
    match call:
        case ToolCall():
            return call.own_name or call.tool
        case EffectCall(kind_=kind, request=dict(request)) if kind in ("step", "provider"):
            return str(request.get(kind, kind))
        case EffectCall():
            return call.kind_
        case _:
            return ""


def recorded_effects(events: Sequence[Event]) -> Iterator[RecordedEffect]:
    """Yield the effects of a run that have ended, in the order of their outcomes. Those that were cancelled have no
    outcome that another run could take."""
    conversations = Conversations()
    open_ones: dict[str, str] = {}
    for event in events:
        payload = known_payload(event)
        if payload is None:
            continue
        conversations.apply(event, payload)
        match payload:
            case ModelCall():
                request = conversations.request_in(event)
                if request is not None:
                    open_ones[event.key] = turn_digest(payload, request)
            case ToolCall() | EffectCall():
                open_ones[event.key] = call_digest(payload)
            case ModelResult() | ToolResult() | EffectResult() if event.key in open_ones:
                yield RecordedEffect(event.key, open_ones.pop(event.key), payload, event.n)
            case _:
                pass
