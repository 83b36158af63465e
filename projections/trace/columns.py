"""The columns of a run's events: the members that lists and timelines need, without contents, in few bytes.

Members that repeat are indices into dictionaries, and growing numbers are differences. The result compresses well, so
that a client can read a hundred thousand events in one response.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.events import Event, Payload
from callboard.bus.paths import effect_key
from callboard.bus.prices import Cost
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import failed_result, outcome_of, subject_of

NAME_CHARS_MAX = 120

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_MS = dt.timedelta(milliseconds=1)


class Columns(Struct, frozen=True):
    """Some of a run's events: each event has the same index in every column.

    ``n``, ``sequence`` (in the stream) and ``time`` (ms since 1970) are differences to the previous event; the first
    ones are differences to ``after``, 0 and 0. ``type``, ``path``, ``slot``, ``name`` and ``outcome`` are indices into
    the lists with the plural names. The effect key is ``path#iteration.attempt!slot``, unless ``keys`` has another one
    for the event's number. ``tokens`` are those of a model's answer, and ``size`` is in bytes in the log. ``costs`` has
    the cost of each event that has one, by the event's number.
    """

    types: list[str]
    paths: list[str]
    slots: list[str]
    names: list[str]
    outcomes: list[str]
    n: list[int]
    sequence: list[int]
    time: list[int]
    type: list[int]
    path: list[int]
    iteration: list[int]
    attempt: list[int]
    slot: list[int]
    name: list[int]
    outcome: list[int]
    tokens: list[int]
    size: list[int]
    keys: dict[int, str]
    costs: dict[int, Cost]


class EventRow(NamedTuple):
    """An event with its sequence in the stream, its size in the log, and its cost, if it has one."""

    sequence: int
    size: int
    event: Event
    cost: Cost | None = None


class _Words:
    """A growing dictionary: the index of each word."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, word: str) -> int:
        return self.places.setdefault(word, len(self.places))


def columns(rows: Iterable[EventRow], after: int) -> Columns:
    """Return the columns of a run's events after number ``after``, which must be in order."""
    types, paths, slots, names, outcomes = words = [_Words() for _ in range(5)]
    keys: dict[int, str] = {}
    costs: dict[int, Cost] = {}
    lines: list[tuple[int, ...]] = []
    n, sequence, time = after, 0, 0
    for row in rows:
        event, at = row.event, (row.event.time - _EPOCH) // _MS
        name, outcome, tokens = about(event)
        lines.append(
            (
                event.n - n,
                row.sequence - sequence,
                at - time,
                types.place(event.type),
                paths.place(event.path),
                event.iteration,
                event.attempt,
                slots.place(_slot(event, keys)),
                names.place(name[:NAME_CHARS_MAX]),
                outcomes.place(outcome),
                tokens,
                row.size,
            )
        )
        n, sequence, time = event.n, row.sequence, at
        if row.cost is not None:
            costs[event.n] = row.cost
    numbers = [list(column) for column in zip(*lines, strict=True)] or [list[int]() for _ in range(12)]
    members: list[Any] = [*(list(one.places) for one in words), *numbers, keys, costs]
    return Columns(*members)


def _slot(event: Event, keys: dict[int, str]) -> str:
    """Return the slot of an event's key. Store the key in ``keys`` if it cannot be derived from the event's place."""
    if not event.key:
        return ""
    slot = event.key.rpartition("!")[2]
    if event.key == effect_key(event.path, event.iteration, event.attempt, slot):
        return slot
    keys[event.n] = event.key
    return ""


class EventSummary(NamedTuple):
    """The subject of an event, its outcome, and the tokens that it used."""

    name: str = ""
    outcome: str = ""
    tokens: int = 0


def about(event: Event) -> EventSummary:
    """Return the subject, outcome and tokens of an event; all empty if its members are stored outside the event."""
    try:
        payload = known_payload(event)
    except msgspec.ValidationError:
        payload = None
    if payload is None:
        return EventSummary()
    return EventSummary(subject_of(event, payload), _outcome_name(payload), _tokens(payload))


def _outcome_name(payload: Payload) -> str:
    match payload:
        case ev.RunFailed() | ev.RunQuarantined() | ev.CommandRefused():
            return "failed"
        case ev.RunDiverged(entry=entry, status=status):
            return status if entry else "failed"
        case ev.RunEnd(status=status):
            return status
        case ev.NodeExit(outcome=outcome) | ev.HumanClosed(outcome=outcome):
            return outcome
        case ev.ToolCall(via="caller"):
            return "caller"
        case ev.EffectResult(value=value) if failed_result(value):
            return "failed"
        case _:
            return outcome_of(payload)[0] if payload.kind == "outcome" else ""


def _tokens(payload: Payload) -> int:
    match payload:
        case ev.ModelResult(usage=usage) | ev.EffectResult(usage=usage) | ev.ChildEnd(usage=usage):
            return usage.input_tokens + usage.output_tokens
        case _:
            return 0
