"""The columns of a run's events: the members that lists and timelines need, without contents, in few bytes.

Members that repeat are indices into dictionaries, and growing numbers are differences. The result compresses well, so
that a client can read a hundred thousand events in one response.
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
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import failed_result, kind_and_name, outcome_of

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


class Row(NamedTuple):
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

    def list(self) -> list[str]:
        return list(self.places)


def columns(rows: Iterable[Row], after: int) -> Columns:
    """Return the columns of a run's events after number ``after``, which must be in order."""
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
    """Return the slot of an event's key. Store the key in ``keys`` if it cannot be derived from the event's place."""
    if not event.key:
        return ""
    slot = event.key.rpartition("!")[2]
    if event.key == effect_key(event.path, event.iteration, event.attempt, slot):
        return slot
    keys[event.n] = event.key
    return ""


class About(NamedTuple):
    """The subject of an event, its outcome, and the tokens that it used."""

    name: str = ""
    outcome: str = ""
    tokens: int = 0


def about(event: Event) -> About:
    """Return the subject, outcome and tokens of an event; all empty if its members are stored outside the event."""
    try:
        payload = known_payload(event)
    except msgspec.ValidationError:
        payload = None
    return _describe(event, payload) if payload is not None else About()


def _describe(event: Event, payload: Payload) -> About:
    match payload:
        case ev.RunAccepted(definition=ref):
            return About(event.definition or ref.name or "")
        case ev.RunClaimed(worker=worker):
            return About(worker)
        case ev.RunEnd(status=status):
            return About(outcome=status)
        case ev.RunFailed(error=error):
            return About(error.code, "failed")
        case ev.RunReleased(worker=worker) | ev.RunAdopted(worker=worker):
            return About(worker)
        case ev.RunDiverged(code=code):
            return About(code, payload.status if payload.entry else "failed")
        case ev.RunQuarantined(code=code):
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
            return About(_subject_of_outcome(payload), _outcome_name(payload), _tokens(payload))
        case _:
            return About()


def _subject_of_outcome(payload: Payload) -> str:
    match payload:
        case ev.ToolResult(tool=tool):
            return tool
        case ev.SignalReceived(name=name):
            return name
        case ev.ModelResult(response_model=model):
            return model or ""
        case _:
            return ""


def _outcome_name(payload: Payload) -> str:
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
