"""Forks of the golden logs: a fork after any event has the same end as the recorded run.

Effects have their recorded outcomes and durations, and people give their recorded answers. Time is virtual, and the log
is in memory.
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
    """Sends the recorded answers and resumes of a run to its fork."""

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__()
        self._resumed_by: dict[str, ev.RunResumed] = {}
        for event in events:
            match payload := ev.payload_of(event):
                case ev.HumanAnswered(interaction=key, user_response=requests):
                    self.answers.setdefault(key, []).append(requests)
                case ev.RunResumed():
                    self._resumed_by[event.path] = payload
                case _:
                    pass

    def _resumed(self, n: int, step: str) -> Command:
        before = self._resumed_by[step]
        return command("resume", n, variables=before.variables, step=before.step, by=before.by)


@dataclass
class ForkHarness(RunHarness):
    """A harness with the real languages, for forks of one recorded run."""

    recorded: Sequence[Event] = field(default_factory=list[Event])
    admission: Admitted | None = None
    """Of the recorded run; the admission of a fork differs only in its first event."""

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
        return _RecordedCarrier(self, super().carrier(ref, admission, keep))

    async def fork(self, n: int) -> RunRef:
        """Admit a fork that shares the first n events."""
        first = self.recorded[0]
        accepted = ev.payload_of(first)
        assert isinstance(accepted, ev.RunAccepted)
        ref = RunRef(TENANT, f"fork-{n}")
        runlog = RunLog(self.log, ref, writer="admission", clock=self.clock)
        runlog.definition = first.definition
        runlog.state(msgspec.structs.replace(accepted, forked_from=ForkedFrom(first.run, n, first.run)))
        await runlog.append_queued()
        return ref


class _RecordedCarrier(Carrier):
    """Gives effects their recorded outcomes and durations. An effect without an outcome hangs until it is cancelled."""

    def __init__(self, harness: ForkHarness, carrier: Carrier) -> None:
        self.tools, self.permits = carrier.tools, carrier.permits
        self._harness = harness
        self._times = {event.key: event.time for event in harness.recorded if ev.TYPES[event.type].kind == "intent"}
        outcomes = [event for event in harness.recorded if ev.TYPES[event.type].kind == "outcome"]
        self._outcomes = {event.key: event for event in outcomes if event.type != ev.EffectCancelled.type}
        requests = [event for event in harness.recorded if event.type == ev.CancelRequested.type]
        self._cancelled = [
            payload for event in requests if isinstance(payload := ev.payload_of(event), ev.CancelRequested)
        ]

    async def carry(self, job: Job, sessions: OpenToolboxes, reporter: Reporter) -> Payload:
        self._harness.executed.append(job.key)
        outcome = self._outcomes.get(job.key)
        if outcome is not None:
            await anyio.sleep((outcome.time - self._times[job.key]).total_seconds())
            return known_payload(outcome)
        for cancel in self._cancelled:
            assert self._harness.acting is not None
            self._harness.acting.tell(command("cancel", 0, reason=cancel.reason, by=cancel.by))
        await anyio.sleep_forever()
        raise AssertionError


async def _store_events(events: Sequence[Event]) -> MemoryLog:
    log = MemoryLog()
    after = 0
    for event in events:
        entry = Entry(event.n, event.epoch, event.type, event.definition, f"golden.{event.n}", ev.encode_event(event))
        after = await log.put(RunRef(TENANT, event.run), [entry], after)
    return log


def _recorded_admission(events: Sequence[Event]) -> Admitted:
    """The admission with the recorded rules, for forks that do not share the ``run.start``."""
    found = read_admission(events[0], language)
    started = next(payload for event in events if isinstance(payload := ev.payload_of(event), ev.RunStart))
    plan = msgspec.structs.replace(found.plan, options={**found.plan.options, **started.options})
    return Admitted(found.accepted, found.start, found.language, plan)


@pytest.mark.parametrize("name", golden_names())
async def test_a_fork_after_any_event_of_a_golden_log_ends_like_the_recorded_run(name: str, quiet_log: None) -> None:
    events = [ev.decode_event(line) for line in golden_lines(name)]
    log, people, admission = await _store_events(events), People(events), _recorded_admission(events)
    for n in select_deaths(events)[:-1]:
        harness = ForkHarness({}, log=log, clock=VirtualClock(), recorded=events, admission=admission)
        assert isinstance(harness.clock, VirtualClock)
        harness.clock.set(events[n - 1].time)
        ref = await harness.fork(n)
        finished = await finish(harness, ref, people)
        check_log(finished)
        assert _comparable(end_of(finished)) == _comparable(end_of(events)), f"forked after event {n}"
        assert not outcome_keys(events[:n]) & set(harness.executed), f"executed again after event {n}"


def _comparable(end: ev.RunEnd) -> Any:
    """The end of a run without times, and without models: a fork does not count the usage of its origin."""
    return timeless(msgspec.to_builtins(msgspec.structs.replace(end, models=[])))
