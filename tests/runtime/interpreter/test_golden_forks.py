"""Forks of the golden logs: gone on from behind any event, a run comes to the end that it came to when it was recorded.

What the world said is taken from the log: effects come to the outcome that they had, after as long, and people say what
they said. Time is virtual, and the log in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import pytest

from callboard.actors.carrier import Carrier, Job, OpenToolboxes, Reporter
from callboard.actors.tools.tool import Keep
from callboard.bus import events as ev
from callboard.bus.events import Environment, Event, ForkedFrom, Payload
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Entry
from callboard.bus.subjects import RunRef
from callboard.languages.language import Language
from callboard.languages.registry import language
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.run.activation import Command
from callboard.runtime.run.log import RunLog
from callboard.testing.checks import check_log, outcome_keys
from callboard.testing.virtual_time import VIRTUAL, VirtualClock
from tests.maintenance.record_golden import golden_lines, golden_names
from tests.support.event_logs import known_payload
from tests.support.graphs import timeless
from tests.support.run_harness import RunHarness, end_of
from tests.support.simulation import World, command, finish
from tests.support.sweeps import select_deaths
from tests.support.worker_processes import TENANT


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


class People(World):
    """Those around a recorded run, who say to a fork of it what they said."""

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__()
        self._resumed_by: dict[str, ev.RunResumed] = {}
        for event in events:
            match payload := ev.payload_of(event):
                case ev.HumanAnswered(interaction=key, user_response=said):
                    self.answers.setdefault(key, []).append(said)
                case ev.RunResumed():
                    self._resumed_by[event.path] = payload
                case _:
                    pass

    def _resumed(self, n: int, step: str) -> Command:
        before = self._resumed_by[step]
        return command("resume", n, variables=before.variables, step=before.step, by=before.by)


@dataclass
class Revival(RunHarness):
    """The harness with the languages that there are, for forks of one recorded run."""

    recorded: Sequence[Event] = field(default_factory=list[Event])
    admission: Admitted | None = None
    """Of the recorded run: that of a fork of it differs in its first event alone."""

    def language(self, name: str) -> Language[Any]:
        return language(name)

    async def read_admission(self, first: Event, code: str = "") -> Admitted:
        accepted = ev.payload_of(first)
        assert isinstance(accepted, ev.RunAccepted)
        assert self.admission is not None
        return Admitted(accepted, self.admission.start, self.admission.language, self.admission.plan)

    def environment(self, admission: Admitted) -> Environment:
        started = next(payload for event in self.recorded if isinstance(payload := ev.payload_of(event), ev.RunStart))
        return started.environment

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        return _Recorded(self, super().carrier(ref, admission, keep))

    async def fork(self, n: int) -> RunRef:
        """Admit a fork that goes on behind event n."""
        first = self.recorded[0]
        accepted = ev.payload_of(first)
        assert isinstance(accepted, ev.RunAccepted)
        ref = RunRef(TENANT, f"fork-{n}")
        runlog = RunLog(self.log, ref, writer="admission", clock=self.clock)
        runlog.definition = first.definition
        runlog.state(msgspec.structs.replace(accepted, forked_from=ForkedFrom(first.run, n, first.run)))
        await runlog.append_queued()
        return ref


class _Recorded(Carrier):
    """Effects come to the outcome that they had, after as long; one that had none hangs until it is cancelled."""

    def __init__(self, harness: Revival, carrier: Carrier) -> None:
        self.tools, self.permits = carrier.tools, carrier.permits
        self._theatre = harness
        self._times = {event.key: event.time for event in harness.recorded if ev.TYPES[event.type].kind == "intent"}
        outcomes = [event for event in harness.recorded if ev.TYPES[event.type].kind == "outcome"]
        self._outcomes = {event.key: event for event in outcomes if event.type != ev.EffectCancelled.type}
        said = [event for event in harness.recorded if event.type == ev.CancelRequested.type]
        self._cancelled = [payload for event in said if isinstance(payload := ev.payload_of(event), ev.CancelRequested)]

    async def carry(self, job: Job, sessions: OpenToolboxes, reporter: Reporter) -> Payload:
        self._theatre.executed.append(job.key)
        outcome = self._outcomes.get(job.key)
        if outcome is not None:
            await anyio.sleep((outcome.time - self._times[job.key]).total_seconds())
            return known_payload(outcome)
        for cancel in self._cancelled:
            assert self._theatre.acting is not None
            self._theatre.acting.tell(command("cancel", 0, reason=cancel.reason, by=cancel.by))
        await anyio.sleep_forever()
        raise AssertionError


async def _stored(events: Sequence[Event]) -> MemoryLog:
    log = MemoryLog()
    after = 0
    for event in events:
        entry = Entry(event.n, event.epoch, event.type, event.definition, f"golden.{event.n}", ev.encode_event(event))
        after = await log.put(RunRef(TENANT, event.run), [entry], after)
    return log


def _as_then(events: Sequence[Event]) -> Admitted:
    """The recorded run as it was admitted, by the rules of then: a fork that shares no ``run.start`` states its own."""
    found = read_admission(events[0], language)
    started = next(payload for event in events if isinstance(payload := ev.payload_of(event), ev.RunStart))
    plan = msgspec.structs.replace(found.plan, options={**found.plan.options, **started.options})
    return Admitted(found.accepted, found.start, found.language, plan)


@pytest.mark.parametrize("name", golden_names())
async def test_forked_behind_every_event_a_recorded_run_ends_as_it_did(name: str, quiet_log: None) -> None:
    events = [ev.decode_event(line) for line in golden_lines(name)]
    log, people, admission = await _stored(events), People(events), _as_then(events)
    for n in select_deaths(events)[:-1]:
        harness = Revival({}, log=log, clock=VirtualClock(), recorded=events, admission=admission)
        assert isinstance(harness.clock, VirtualClock)
        harness.clock.set(events[n - 1].time)
        ref = await harness.fork(n)
        finished = await finish(harness, ref, people)
        check_log(finished)
        assert _told(end_of(finished)) == _told(end_of(events)), f"forked behind event {n}"
        assert not outcome_keys(events[:n]) & set(harness.executed), f"executed again behind event {n}"


def _told(end: ev.RunEnd) -> Any:
    """What a run came to, without the times of a graph's nodes. A fork leaves the usage of its origin out of its
    models."""
    return timeless(msgspec.to_builtins(msgspec.structs.replace(end, models=[])))
