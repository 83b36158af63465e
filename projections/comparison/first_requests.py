"""The first model turn whose request differs between two runs.

Turns are compared by the full text of their new messages. The digest that a call records is not enough, because a call
refers to earlier values, which may differ between the runs.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.conversation import TurnRequest
from callboard.bus.events import Event, ModelCall
from callboard.projections.comparison.account import compared_model
from callboard.projections.comparison.json_differences import Difference, differences
from callboard.projections.comparison.text_marks import Marker
from callboard.projections.projection import known_payload
from callboard.projections.trace.conversations import Conversations


class Sight(Struct, frozen=True):
    """A model turn whose request differs: its effect key, the event of the call in each run, and the differences."""

    key: str
    path: str
    left: int
    right: int
    request: list[Difference]


def first_sight(
    left: Sequence[Event],
    right: Sequence[Event],
    marker: Marker,
    after: int = 0,
    defaults: frozenset[str] = frozenset(),
) -> Sight | None:
    """Return the first turn after event ``after``, in the left run's order, that both runs have and that differs.

    ``defaults`` are models that count as one (`callboard.projections.comparison.account`).
    """
    theirs = {event.key: (event, digest) for event, digest in _turns(right, after, defaults)}
    for event, digest in _turns(left, after, defaults):
        other, others = theirs.get(event.key, (None, b""))
        if other is not None and digest != others:
            found = differences(_request(left, event, defaults), _request(right, other, defaults), marker)
            return Sight(event.key, event.path, event.n, other.n, found)
    return None


def _turns(events: Sequence[Event], after: int, defaults: frozenset[str]) -> Iterator[tuple[Event, bytes]]:
    """Yield every turn with a digest of its new messages."""
    for event, call, conversations in _calls(events):
        if event.n > after:
            yield (
                event,
                sha256(
                    msgspec.json.encode((_compared_members(call, call, defaults), conversations.news(event)))
                ).digest(),
            )


def _request(events: Sequence[Event], called: Event, defaults: frozenset[str]) -> dict[str, Any]:
    """Return the whole request of a turn, or only the recorded part if the rest is not available."""
    call, conversations = next((call, so_far) for event, call, so_far in _calls(events) if event.n == called.n)
    request = conversations.request_in(called) or call
    return msgspec.to_builtins({**_compared_members(call, request, defaults), "messages": request.messages})


def _compared_members(call: ModelCall, request: TurnRequest | ModelCall, defaults: frozenset[str]) -> dict[str, Any]:
    told = {name: getattr(call, name) for name in ("purpose", "choices", "max_output_tokens", "temperature")}
    told["model"] = compared_model(call, defaults)
    if call.parameters:
        told["parameters"] = call.parameters
    return {**told, **{name: getattr(request, name) for name in ("system", "tools", "schema")}}


def _calls(events: Sequence[Event]) -> Iterator[tuple[Event, ModelCall, Conversations]]:
    """Yield every model call, with the conversations up to it."""
    conversations = Conversations()
    for event in events:
        payload = known_payload(event)
        if payload is None:
            continue
        conversations.apply(event, payload)
        if isinstance(payload, ModelCall):
            yield event, payload, conversations
