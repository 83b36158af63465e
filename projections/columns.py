"""The columns of a run's events: what lists and timelines need of each, apart from its content, in few bytes.

A member of an event that repeats is an index into a dictionary; numbers that grow are differences. It compresses well,
and a hundred thousand events are read in one go.
"""

import datetime as dt
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.events import Event, Payload
from callboard.bus.paths import effect_key
from callboard.bus.prices import Cost
from callboard.projections.effects import failed_result, kind_and_name, outcome_of
from callboard.projections.projection import known

NAME_CHARS_MAX = 120

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_MS = dt.timedelta(milliseconds=1)


class Columns(Struct, frozen=True):
    """Some of a run's events, the member of each at the same place of every column.

    ``n``, ``sequence`` (in the stream) and ``time`` (ms since 1970) are differences to the one before, the first of
    them to ``after``, to 0 and to 0. ``type``, ``path``, ``slot``, ``name`` and ``outcome`` are places in the lists of
    the same name; the effect key is ``path#iteration.attempt!slot``, or what ``keys`` has for the number of the event.
    ``tokens`` are those of a model's answer, ``size`` are bytes in the log; ``costs`` has, by the
    number of the event, what those have cost that used some.
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


class Row(NamedTuple):
    """An event with its sequence in the stream, its size in the log, and what it has cost, if it used anything."""

    sequence: int
    size: int
    event: Event
    cost: Cost | None = None


class _Words:
    """A dictionary that grows: the place of each word."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, word: str) -> int:
        return self.places.setdefault(word, len(self.places))

    def list(self) -> list[str]:
        return list(self.places)


def columns(rows: Iterable[Row], after: int) -> Columns:
    """Return the columns of a run's events, which come in order, behind number ``after``."""
    types, paths, slots, names, outcomes = (_Words() for _ in range(5))
    found = Columns([], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], {}, {})
    n, sequence, time = after, 0, 0
    for row in rows:
        event = row.event
        told = about(event)
        at = (event.time - _EPOCH) // _MS
        found.n.append(event.n - n)
        found.sequence.append(row.sequence - sequence)
        found.time.append(at - time)
        n, sequence, time = event.n, row.sequence, at
        found.type.append(types.place(event.type))
        found.path.append(paths.place(event.path))
        found.iteration.append(event.iteration)
        found.attempt.append(event.attempt)
        found.slot.append(slots.place(_slot(event, found.keys)))
        found.name.append(names.place(told.name[:NAME_CHARS_MAX]))
        found.outcome.append(outcomes.place(told.outcome))
        found.tokens.append(told.tokens)
        found.size.append(row.size)
        if row.cost is not None:
            found.costs[event.n] = row.cost
    return msgspec.structs.replace(
        found,
        types=types.list(),
        paths=paths.list(),
        slots=slots.list(),
        names=names.list(),
        outcomes=outcomes.list(),
    )


def _slot(event: Event, keys: dict[int, str]) -> str:
    """The slot of an event's key; a key that is not made of its place stands in ``keys``."""
    if not event.key:
        return ""
    slot = event.key.rpartition("!")[2]
    if event.key == effect_key(event.path, event.iteration, event.attempt, slot):
        return slot
    keys[event.n] = event.key
    return ""


class About(NamedTuple):
    """What an event is about, how it came out, and the tokens that it took."""

    name: str = ""
    outcome: str = ""
    tokens: int = 0


def about(event: Event) -> About:
    """Say what an event is about; of one whose members are stored beside it, nothing."""
    try:
        payload = known(event)
    except msgspec.ValidationError:
        payload = None
    return _told(event, payload) if payload is not None else About()


def _told(event: Event, payload: Payload) -> About:
    match payload:
        case ev.RunAccepted(definition=ref):
            return About(event.definition or ref.name or "")
        case ev.RunClaimed(worker=worker):
            return About(worker)
        case ev.RunEnd(status=status):
            return About(outcome=status)
        case ev.RunFailed(error=error):
            return About(error.code, "failed")
        case ev.RunReleased(worker=worker):
            return About(worker)
        case ev.RunDiverged(code=code) | ev.RunQuarantined(code=code):
            return About(code, "failed")
        case ev.RunParked(status=status):
            return About(status or "")
        case ev.CancelRequested(kill=kill):
            return About("kill" if kill else "")
        case ev.CommandRefused(verb=verb):
            return About(verb, "failed")
        case ev.NodeEnter(node=node, name=name):
            return About(name or node)
        case ev.NodeExit(outcome=outcome):
            return About(outcome=outcome)
        case ev.NodeRetry(reason=reason):
            return About(reason)
        case ev.NodeProgress(message=message):
            return About(message)
        case ev.NodeWarning(code=code):
            return About(code)
        case ev.Route(target=target):
            return About(target)
        case ev.ChildStart(child=child):
            return About(child)
        case ev.ToolCall(tool=tool, via="caller"):
            return About(tool, "caller")
        case ev.HumanAnswered(by=by):
            return About(by or "")
        case _ if payload.kind == "intent":
            return About(kind_and_name(payload)[1])
        case _ if payload.kind == "outcome":
            return About(_of_outcome(payload), _ended(payload), _tokens(payload))
        case _:
            return About()


def _of_outcome(payload: Payload) -> str:
    match payload:
        case ev.ToolResult(tool=tool):
            return tool
        case ev.SignalReceived(name=name):
            return name
        case ev.ModelResult(response_model=model):
            return model or ""
        case _:
            return ""


def _ended(payload: Payload) -> str:
    if isinstance(payload, ev.HumanClosed):
        return payload.outcome
    if isinstance(payload, ev.EffectResult) and failed_result(payload.value):
        return "failed"
    return outcome_of(payload)[0]


def _tokens(payload: Payload) -> int:
    match payload:
        case ev.ModelResult(usage=usage) | ev.EffectResult(usage=usage) | ev.ChildEnd(usage=usage):
            return usage.input_tokens + usage.output_tokens
        case _:
            return 0
