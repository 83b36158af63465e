"""A simulated world for the theatre: virtual time, crashes at any append, people who answer, and what must then hold.

Nothing here sleeps for real: `VirtualLoop` jumps to its next timer, and fails when there is none.
"""

import asyncio
import datetime as dt
import itertools
import selectors
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

import anyio
import msgspec

from callboard.actors.carrier import EffectFailed, Job
from callboard.bus import events as ev
from callboard.bus.effects import JSON, Failure
from callboard.bus.events import Event
from callboard.bus.log import Beside, Entry, Recorded
from callboard.bus.memory import MemoryLog
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Ok
from callboard.projections.status import StatusFold
from callboard.runtime.interpreter.replay import admitted, build_stage, replay
from callboard.runtime.interpreter.stage import Stage
from callboard.runtime.run.activation import Command
from tests.theatre import Theatre, types

BEGINNING = dt.datetime(2026, 11, 20, 11, 0, tzinfo=dt.UTC)

ACTIVATIONS_MAX = 400
"""A run that has not ended after so many activations never will."""


class NothingWillHappen(Exception):
    """Everybody waits, and no timer is set: a deadlock."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that never waits: what would be waited for is added to the time instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise NothingWillHappen
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps from timer to timer."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


VIRTUAL = {"loop_factory": VirtualLoop}
"""Options of anyio's asyncio backend."""


def simulate(body: Callable[[], Awaitable[Any]]) -> None:
    """Run a coroutine function in virtual time."""
    anyio.run(body, backend="asyncio", backend_options=VIRTUAL)


class VirtualClock:
    """The time of day, moving with the virtual loop; it can be set."""

    def __init__(self, start: dt.datetime = BEGINNING) -> None:
        self._start = start
        self._zero: float | None = None

    def __call__(self) -> dt.datetime:
        now = anyio.current_time()
        if self._zero is None:
            self._zero = now
        return self._start + dt.timedelta(seconds=now - self._zero)

    def set(self, instant: dt.datetime) -> None:
        self._start, self._zero = instant, None


class Crash(BaseException):
    """The worker dies here."""


CrashPoint = Literal["before", "after"] | None


def never(_entry: Entry) -> CrashPoint:
    return None


class CrashingLog(MemoryLog):
    """An in-memory log whose writers die at chosen appends, before the entry is stored or right after."""

    crash: Callable[[Entry], CrashPoint] = staticmethod(never)

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        for entry in entries:
            point = self.crash(entry)
            if point == "before":
                raise Crash
            after = await super().put(ref, [entry], after, beside)
            if point == "after":
                raise Crash
        return after


async def copied(recorded: Sequence[Recorded], log: MemoryLog) -> None:
    """Append recorded events to an empty log: the log as it was when the last of them had been stored."""
    after = 0
    for item in recorded:
        event = item.event
        entry = Entry(event.n, event.epoch, event.type, event.definition, item.id, item.data)
        after = await log.put(item.ref, [entry], after)


# -- the world outside -------------------------------------------------------------------------------------------------


@dataclass
class World:
    """People and programs around a run: they answer what stands open in its log, each with one command for good."""

    answers: dict[str, list[JSON]] = field(default_factory=dict[str, list[JSON]])
    """By effect key of the question or call: the answers, in order."""
    signals: dict[str, JSON] = field(default_factory=dict[str, JSON])
    variables: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By step: what resuming its breakpoint overrides."""

    def says(self, events: Sequence[Event]) -> list[Command]:
        """Return the commands that this log calls for; asked again they have the same stream sequences."""
        answered = [ev.payload_of(event) for event in events if event.type == ev.HumanAnswered.type]
        said: list[Command] = []
        for event in open_intents(events):
            match ev.payload_of(event):
                case ev.HumanAsked() | ev.ToolCall(via="caller"):
                    k = sum(isinstance(past, ev.HumanAnswered) and past.interaction == event.key for past in answered)
                    given = self.answers.get(event.key, [])
                    if k < len(given):
                        said.append(_command("answer", k, interaction=event.key, user_response=given[k]))
                case ev.SignalAwaited(name=name):
                    if name in self.signals:
                        said.append(_command("signal", 0, name=name, data=self.signals[name]))
                case ev.RunPaused(step=step):
                    said.append(_command("resume", event.n, variables=self.variables.get(step or "", {})))
                case _:
                    pass
        return said


def _command(verb: str, k: int, **body: Any) -> Command:
    data = msgspec.json.encode(body)
    return Command(crc32(data + verb.encode() + str(k).encode()), verb, data, lambda: None)


class Effects:
    """Carries out the effects of simulated plays as their requests say.

    ``after`` seconds, then ``value``, or a failure of the code ``fail``; ``hang`` never ends; ``tell`` first sends the
    run that command, always with the same stream sequence.
    """

    def __init__(self) -> None:
        self.theatre: Theatre

    async def __call__(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        if "tell" in request:
            assert self.theatre.acting is not None
            self.theatre.acting.tell(_command(request["tell"], 0, reason=job.key))
        if request.get("hang"):
            await anyio.sleep_forever()
        await anyio.sleep(request.get("after", 0))
        if "fail" in request:
            raise EffectFailed(Failure(code=request["fail"]))
        return request.get("value"), None


def theatre_for(play: Callable[[Any], Awaitable[End]], log: MemoryLog | None = None, **names: Any) -> Theatre:
    """A theatre in virtual time with one play, ``p``."""
    effects = Effects()
    theatre = Theatre({"p": play}, log=log or CrashingLog(), clock=VirtualClock(), calls=effects, **names)
    effects.theatre = theatre
    return theatre


async def finish(theatre: Theatre, ref: RunRef, world: World) -> list[Event]:
    """Activate a run until it has ended, as workers and server would: alarms ring, people answer."""
    assert isinstance(theatre.clock, VirtualClock)
    for _ in range(ACTIVATIONS_MAX):
        events = await theatre.events(ref)
        commands = world.says(events)
        if events[-1].type == ev.RunParked.type and not commands:
            parked = ev.payload_of(events[-1])
            assert isinstance(parked, ev.RunParked)
            assert parked.deadline is not None, f"nobody will ever wake this run: {parked.awaits}"
            assert isinstance(theatre.log, MemoryLog)
            theatre.clock.set(max(theatre.clock(), parked.deadline))
            commands = [theatre.command("alarm")]
        with suppress(Crash):
            try:
                if await theatre.perform(ref, *commands) in ("ended", "finished_before"):
                    return await theatre.events(ref)
            except BaseExceptionGroup as group:
                died, other = group.split(Crash)
                if other is not None or died is None:
                    raise
    raise AssertionError(f"no end after {ACTIVATIONS_MAX} activations: {types(await theatre.events(ref))[-20:]}")


# -- what must hold ----------------------------------------------------------------------------------------------------


def open_intents(events: Iterable[Event]) -> list[Event]:
    """Intents without an outcome, in the order of the log."""
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
    """Check what holds of every finished log: numbers, times, the end, that each intent has exactly one outcome, and
    that a run is parked with the status that its events give."""
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
    # Where large values are elsewhere, not every event can be read here.
    for event in [] if any(event.blobs for event in events) else events:
        fold.apply(event, payload := ev.payload_of(event))
        assert not isinstance(payload, ev.RunParked) or payload.status == fold.status
    entered = [(e.path, e.iteration) for e in events if e.type == ev.NodeEnter.type]
    left = [(e.path, e.iteration) for e in events if e.type == ev.NodeExit.type]
    assert sorted(entered) == sorted(left)


class RefusingSink:
    """A sink for replays of finished logs: everything has been written already."""

    def __init__(self, at: dt.datetime = BEGINNING) -> None:
        self._at = at

    def seal(self, payload: ev.Payload) -> bytes:
        return ev.encode_payload(payload)

    def write(self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str) -> Event:
        raise AssertionError(f"a replay appends {event_type} {key or path}: {payload.decode()}")

    def clock(self) -> dt.datetime:
        return self._at

    def abandon(self, key: str) -> None:
        pass

    def close_toolbox(self, key: str) -> None:
        pass


def replayed(theatre: Theatre, ref: RunRef, events: Sequence[Event]) -> Stage:
    """Replay a finished log into a stage that may not append; return the stage."""
    # The end is stated by the run and not by its interpreter.
    events = [event for event in events if event.type not in (ev.RunFailed.type, ev.RunEnd.type)]
    admission = admitted(events[0], theatre.language)
    stage, started = build_stage(admission, ref, events, RefusingSink())
    replay(stage, admission, started, events)
    stage.ledger.verify_replayed()
    return stage


def check_replay(theatre: Theatre, ref: RunRef, events: Sequence[Event]) -> None:
    """Check that a replay of a finished log appends nothing and comes to the recorded end."""
    stage = replayed(theatre, ref, events)
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert stage.main is not None
    match stage.main.settled:
        case Ok(came):
            assert (came.status, came.output, came.results, came.error) == (
                end.status,
                end.output,
                end.results,
                end.error,
            )
        case unwound:
            assert unwound is not None
            assert end.status == "cancelled"
    assert stage.ledger.usage.total == end.usage
