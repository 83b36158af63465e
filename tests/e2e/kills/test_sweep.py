"""Crashes at every append and forks at every event: each interpreter must reach the same end."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from callboard.bus import events as ev
from callboard.bus.events import Event, decode_event
from callboard.bus.log.encryption import is_encrypted
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Entry
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.testing.checks import check_log, check_replay, outcome_keys
from callboard.testing.crashes import CrashingLog, CrashPoint
from callboard.testing.virtual_time import VIRTUAL, VirtualClock
from tests.support import sample_interpreters as plays
from tests.support.run_harness import RunHarness, end_of, types
from tests.support.simulation import World, finish, harness_for
from tests.support.sweeps import select_deaths


@dataclass(frozen=True)
class Case:
    """An interpreter with its environment, and its expected status."""

    name: str
    play: Callable[[Stage], Awaitable[End]]
    status: str
    world: World = field(default_factory=World)
    script: dict[str, Any] = field(default_factory=dict[str, Any])
    breakpoints: list[str] = field(default_factory=list[str])
    contains: tuple[str, ...] = ()
    """Event types that the undisturbed run must have."""

    def harness(self, log: MemoryLog | None = None) -> RunHarness:
        return harness_for(self.play, log, script=self.script)


CASES = [
    Case(
        "workflow",
        plays.workflow,
        "completed",
        script=plays.AGENT_SCRIPT,
        contains=("model.result", "tool.result", "node.retry", "route", "sources.resolved"),
    ),
    Case("flow", plays.flow, "completed", contains=("effect.cancelled", "timer.fired", "clock.read", "run.parked")),
    Case(
        "playbook",
        plays.playbook,
        "completed",
        World(answers={"1#1.1!ask": ["Bob"]}, signals={"morning": 7}, variables={"1": {"x": 1}, "4": {"y": 2}}),
        breakpoints=["1", "4"],
        contains=("run.resumed", "human.closed", "signal.received", "timer.fired", "node.warning"),
    ),
    Case(
        "graph",
        plays.graph,
        "completed",
        World(answers={"approve#1.1!ask": ["hm", "yes"], "#1.1!tool.0.0": [{"ok": True}]}),
        script=plays.APPROVAL_SCRIPT,
        contains=("human.answered", "tool.result", "node.retry", "timer.fired", "effect.cancelled"),
    ),
    Case("cancelled", plays.cancelled, "cancelled", contains=("cancel.requested", "effect.cancelled", "timer.fired")),
    Case("killed", plays.killed, "cancelled", contains=("cancel.requested", "effect.cancelled")),
    Case("stuck", plays.stuck, "failed", contains=("run.failed",)),
    Case("broken", plays.broken, "failed", contains=("run.failed", "effect.cancelled")),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


@pytest.fixture(autouse=True)
def plain_log(quiet_log: None) -> None:
    """Do not render tracebacks."""
    structlog.configure(processors=[])


async def perform_undisturbed(case: Case) -> tuple[RunHarness, RunRef, list[Event]]:
    harness = case.harness()
    ref = await harness.accept("p", breakpoints=case.breakpoints)
    events = await finish(harness, ref, case.world)
    check_log(events)
    assert set(case.contains) <= set(types(events))
    assert end_of(events).status == case.status, end_of(events).error
    assert len(harness.executed) == len(set(harness.executed))
    return harness, ref, events


def check_finished(case: Case, harness: RunHarness, ref: RunRef, events: list[Event], expected: ev.RunEnd) -> None:
    check_log(events)
    assert end_of(events) == expected
    if case.status == "completed":
        check_replay(harness.language, ref, events)


@every_case
async def test_a_fork_after_any_event_ends_the_same(case: Case) -> None:
    harness, ref, events = await perform_undisturbed(case)
    check_finished(case, harness, ref, events, end_of(events))
    assert isinstance(harness.log, MemoryLog)
    for k in select_deaths(events)[:-1]:
        other = case.harness(harness.log)
        assert isinstance(other.clock, VirtualClock)
        other.clock.set(events[k - 1].time)
        fork = await other.accept("p", f"fork-{k}", None, case.breakpoints, ev.ForkedFrom(ref.run, k, ref.run))
        finished = await finish(other, fork, case.world)
        check_finished(case, other, fork, finished, end_of(events))
        assert {event.run for event in finished} == {fork.run}
        assert not outcome_keys(events[:k]) & set(other.executed), f"executed again after event {k}"
        assert await harness.events(ref) == events, "the origin was touched"


@every_case
async def test_a_run_ends_the_same_after_a_crash_at_any_append(case: Case) -> None:
    """A crash before an append or after the previous one leaves the same log, so each boundary has one of the two."""
    _, _, events = await perform_undisturbed(case)
    for n in select_deaths(events):
        # The first append is the admission, which no crash interrupts here.
        point: CrashPoint = "before" if n % 2 and n < len(events) else "after"
        k = n + 1 if point == "before" else n
        crashed = False

        def crash(entry: Entry, k: int = k, point: CrashPoint = point) -> CrashPoint:
            nonlocal crashed
            if entry.n != k or crashed:
                return None
            crashed = True
            return point

        log = CrashingLog()
        log.crash = crash
        harness = case.harness(log)
        ref = await harness.accept("p", breakpoints=case.breakpoints)
        finished = await finish(harness, ref, case.world)
        assert crashed
        check_finished(case, harness, ref, finished, end_of(events))
        carried_out = Counter(harness.executed)
        again = [key for key in outcome_keys(finished[:n]) if carried_out[key] > 1]
        assert not again, f"executed again after event {n}"


@every_case
@pytest.mark.parametrize("key", [None, "ada"])
async def test_a_run_ends_the_same_if_every_step_is_replayed(case: Case, key: str | None) -> None:
    """The worker dies after every outcome, so each next step follows a replay, with and without encryption."""
    _, _, events = await perform_undisturbed(case)

    def crash(entry: Entry) -> CrashPoint:
        return "after" if ev.TYPES[entry.type].kind == "outcome" else None

    log = CrashingLog()
    log.crash = crash
    harness = case.harness(log)
    ref = await harness.accept("p", breakpoints=case.breakpoints, encryption_key=key)
    finished = await finish(harness, ref, case.world)
    assert all(is_encrypted(decode_event(item.data).payload) == bool(key) for item in await log.read(ref))
    check_finished(case, harness, ref, finished, end_of(events))
