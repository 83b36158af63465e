"""Replays a run: drives its interpreter over its log again, without writing the events that it would append."""

import datetime as dt
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError, ReplayDiverged
from callboard.bus.events import TYPES, Difference, Event, RunEnd, RunStart, payload_of
from callboard.bus.subjects import RunRef
from callboard.languages.hosting import BLOCKING
from callboard.lib.json_decoder import decode_json
from callboard.projections.run.run_result import OpenEffect, RunResult
from callboard.runtime.interpreter.replay import Admitted, build_stage, replay
from callboard.runtime.interpreter.run_end import conclude, conclude_failed
from callboard.runtime.interpreter.stage import DELIVERED_FACTS, RunStage
from callboard.runtime.run.replay_observer import Observer
from callboard.service.operations.narration import narrate
from callboard.service.operations.results import result_of


class Unwritten(Struct, frozen=True):
    """An event that the replay would append next, because the run stopped before it was recorded."""

    type: str
    path: str
    key: str
    text: str


class Deadline(Struct, frozen=True):
    due: dt.datetime
    key: str


class Replayed(Struct, frozen=True, kw_only=True):
    """The result of a replay up to event ``at`` of ``events``: the run's state, and what its interpreter waits for."""

    run: str
    at: int
    events: int
    ended: bool
    open: list[OpenEffect]
    questions: list[str]
    deadlines: list[Deadline]
    unwritten: list[Unwritten]
    standing: RunResult


def replay_events(
    ref: RunRef, events: Sequence[Event], admission: Admitted, secrets: dict[str, str], at: int | None = None
) -> Replayed:
    """Replay a run's events up to ``at``, and verify all facts and effects of the interpreter against them.

    Without ``at``, a run whose code was interrupted because it blocked its worker is replayed up to the event before:
    the code would block again.

    :raises ReplayDiverged: if the interpreter differs from the recorded events
    :raises CallboardError: ``replay.not_started``, ``replay.no_event``
    """
    last = events[-1]
    until = _find_end(events) if at is None else at
    if until > last.n:
        raise CallboardError("replay.no_event", f"the run has no event {until}; the last is {last.n}", ref.run)
    ended = last.type == RunEnd.type
    over = ended and until == last.n
    with replayed_to(ref, events, admission, secrets, until) as (stage, sink):
        if until == last.n:
            _verify(stage, sink, ref, last, ended)
        return _describe(stage, sink, ref, events, until, over)


def _describe(
    stage: RunStage, sink: Observer, ref: RunRef, events: Sequence[Event], until: int, over: bool
) -> Replayed:
    """Return the state of a run that was replayed up to the event ``until``; ``over``: the run has ended there."""
    effects = [] if over else [effect.event for effect in stage.waits.effects.values()]
    return Replayed(
        run=ref.run,
        at=until,
        events=events[-1].n,
        ended=events[-1].type == RunEnd.type,
        open=[OpenEffect(event.key, event.type, event.path, event.n, event.time) for event in effects],
        questions=[] if over else list(stage.waits.questions),
        deadlines=[] if over else [Deadline(due, key) for due, key in stage.waits.deadlines()],
        unwritten=[_describe_unwritten(event) for event in sink.beyond],
        standing=result_of([event for event in events if event.n <= until]),
    )


def _find_end(events: Sequence[Event]) -> int:
    """Return the number of the last event that a replay can reach."""
    end = payload_of(events[-1]) if events[-1].type == RunEnd.type else None
    failure = end.error if isinstance(end, RunEnd) else None
    if failure is None or failure.code != BLOCKING or not isinstance(failure.details, dict):
        return events[-1].n
    turn: Any = failure.details.get("turn")
    delivered = [event.n for event in events if TYPES[event.type].kind == "outcome" or event.type in DELIVERED_FACTS]
    # The turn 0 is the start of the run, each further one the delivery of an event.
    return (delivered[turn - 1] if turn else next(event.n for event in events if event.type == RunStart.type)) - 1


@contextmanager
def replayed_to(
    ref: RunRef, events: Sequence[Event], admission: Admitted, secrets: dict[str, str], until: int
) -> Generator[tuple[RunStage, Observer]]:
    """Replay a run's events up to ``until``. The block gets its stage at that event, and the sink with the unwritten
    events; the interpreter is dropped after the block.

    :raises ReplayDiverged: if the interpreter differs from the recorded events
    :raises CallboardError: ``replay.not_started``
    """
    started = next((event for event in events if event.type == RunStart.type), None)
    if started is None:
        raise CallboardError("replay.not_started", "the run has not started, so there is nothing to replay", ref.run)
    sink = Observer(ref, events[-1], secrets)
    stage, _ = build_stage(admission, ref, events, sink)
    try:
        if until >= started.n:
            _run(stage, admission, started, [event for event in events if event.n <= until])
        yield stage, sink
    finally:
        stage.drop()


def _run(stage: RunStage, admission: Admitted, started: Event, events: Sequence[Event]) -> None:
    """Deliver events and, if the run is over after them, state its end as a live run does."""
    try:
        replay(stage, admission, started, events)
    except ReplayDiverged:
        raise
    except Exception as error:
        # An error of the interpreter fails the run. If the log has the same failure, the replay agrees with it.
        conclude_failed(stage, Failure(code="internal", message=f"{type(error).__name__}: {error}"))
    else:
        conclude(stage)


def _verify(stage: RunStage, sink: Observer, ref: RunRef, last: Event, ended: bool) -> None:
    """Check, at the end of the log, that the interpreter has requested every recorded effect, and, if the run has
    ended, nothing else."""
    stage.ledger.verify_replayed()
    if ended and sink.beyond:
        requested = sink.beyond[0]
        text = f"{requested.type} {bytes(requested.payload).decode()}"
        difference = Difference(recorded="the run's end", requested=text, requested_at=requested.source)
        raise ReplayDiverged(ref, last.n, difference)


def _describe_unwritten(event: Event) -> Unwritten:
    payload: Any = decode_json(event.payload, type=TYPES[event.type])
    return Unwritten(event.type, event.path, event.key, narrate(event, payload))
