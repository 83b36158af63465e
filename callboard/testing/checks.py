"""Checks of a finished run's log: its order, its outcomes, and that a replay reaches the same end."""

import datetime as dt
import itertools
from collections.abc import Iterable, Sequence

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Ok
from callboard.projections.run.status import StatusFold
from callboard.runtime.interpreter.replay import LanguageOf, build_stage, read_admission, replay
from callboard.runtime.interpreter.run_end import ends_alike
from callboard.runtime.interpreter.stage import RunStage
from callboard.testing.virtual_time import BEGINNING


def open_intents(events: Iterable[Event]) -> list[Event]:
    """Return the intents without an outcome, in the order of the log."""
    opened: dict[str, Event] = {}
    for event in events:
        kind = ev.TYPES[event.type].kind
        if kind == "intent" and event.key:
            opened[event.key] = event
        elif kind == "outcome":
            opened.pop(event.key, None)
    return list(opened.values())


def outcome_keys(events: Iterable[Event]) -> set[str]:
    return {event.key for event in events if ev.TYPES[event.type].kind == "outcome" and event.key}


def check_log(events: Sequence[Event]) -> None:
    """Check a finished log: its numbers, its times and its end.

    Each intent must have exactly one outcome, and a run must be parked with the status that its events give.
    """
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    assert all(a.time <= b.time and a.epoch <= b.epoch for a, b in itertools.pairwise(events))
    assert [event.type for event in events].count(ev.RunEnd.type) == 1
    assert events[-1].type == ev.RunEnd.type
    intents: dict[str, str] = {}
    closed: set[str] = set()
    for event in events:
        kind = ev.TYPES[event.type]
        if kind.kind == "intent" and event.key:
            assert event.key not in intents, f"{event.key} was announced twice"
            intents[event.key] = event.type
        elif kind.kind == "outcome" and event.key:
            assert event.key not in closed, f"{event.key} has two outcomes"
            closed.add(event.key)
            if kind is ev.TimerFired and event.key not in intents:
                continue
            of = ev.TYPES[intents[event.key]]
            assert kind in (ev.OUTCOME_OF[of], ev.EffectCancelled), f"{event.key}: {of.type} closed by {kind.type}"
    assert set(intents) <= closed, f"left open: {set(intents) - closed}"
    fold = StatusFold()
    # Events whose large values are stored outside the log cannot be read here.
    for event in [] if any(event.blobs for event in events) else events:
        payload = ev.payload_of(event)
        assert not isinstance(payload, ev.Newer), f"event {event.n} is one that only a newer version knows"
        fold.apply(event, payload)
        assert not isinstance(payload, ev.RunParked) or payload.status == fold.status
    entered = [(e.path, e.iteration) for e in events if e.type == ev.NodeEnter.type]
    left = [(e.path, e.iteration) for e in events if e.type == ev.NodeExit.type]
    assert sorted(entered) == sorted(left)


class RefusingSink:
    """A sink for replays of finished logs, which rejects every append."""

    observes = True

    def __init__(self, at: dt.datetime = BEGINNING) -> None:
        self._at = at

    def seal(self, payload: ev.Payload) -> bytes:
        return ev.encode_payload(payload)

    def write(
        self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str, source: str = ""
    ) -> Event:
        raise AssertionError(f"a replay appends {event_type} {key or path}: {payload.decode()}")

    def clock(self) -> dt.datetime:
        return self._at

    def abandon(self, key: str) -> None:
        pass

    def close_toolbox(self, key: str) -> None:
        pass


def replay_events(language_of: LanguageOf, ref: RunRef, events: Sequence[Event]) -> RunStage:
    """Replay a finished log into a stage that must not append. Return the stage."""
    # The run appends these events, not the interpreter, so that a replay does not produce them.
    events = [event for event in events if event.type not in (ev.RunFailed.type, ev.RunEnd.type)]
    admission = read_admission(events[0], language_of)
    stage, started = build_stage(admission, ref, events, RefusingSink())
    replay(stage, admission, started, events)
    stage.ledger.verify_replayed()
    return stage


def check_replay(language_of: LanguageOf, ref: RunRef, events: Sequence[Event]) -> None:
    """Check that a replay of a finished log appends nothing and reaches the recorded end.

    A run that was ended before it began has nothing to replay.
    """
    if not any(event.type == ev.RunStart.type for event in events):
        return
    stage = replay_events(language_of, ref, events)
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert stage.main is not None
    match stage.main.settled:
        case Ok(came):
            ended = End(end.status, end.output, end.results, end.error)
            again = End(came.status, came.output, came.results, came.error)
            assert ends_alike(ended, again), f"the replay has ended as {again} instead of {ended}"
        case unwound:
            assert unwound is not None
            assert end.status == "cancelled"
    assert stage.ledger.usage.total == end.usage
