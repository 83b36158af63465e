"""An effect or a run that kills its worker each time is tried a bounded number of times, with growing pauses."""

import datetime as dt
from collections.abc import Sequence

import anyio
import pytest

from callboard.actors.carrier import Job
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Failed, Stage
from callboard.lib.json_types import JSON
from callboard.runtime.run.activation import ActivationEnd
from callboard.runtime.run.actor import RunActor
from callboard.runtime.run.claim_check import ClaimCheck
from callboard.runtime.run.crashes import (
    CODE,
    EFFECT_CRASHES_MAX,
    FRUITLESS_MAX,
    PAUSE_MAX_S,
    PROBATION_CRASHES,
    KeepsCrashing,
    NotYet,
    Probation,
    crashes_of,
)
from tests.support.run_harness import RunHarness, end_of, types

DAY = dt.timedelta(days=1)


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now


async def one_effect(stage: Stage) -> End:
    node = stage.enter("a")
    match await node.call("do", "code", {}):
        case Failed(error):
            node.exit("failed", error=error)
            return End("failed", error=error)
        case _:
            node.exit("ok")
            return End("completed")


class CrashingWorkers:
    """Runs whose workers are killed in the middle of an effect."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.probation = Probation()
        self.busy = anyio.Event()
        self.epochs: list[tuple[int, int]] = []
        """For each execution, the epoch of its intent and of its worker."""
        self.harness = RunHarness({"one": one_effect}, clock=self.clock, calls=self._hang)

    async def _hang(self, job: Job, _request: JSON) -> tuple[JSON, JSON]:
        self.epochs.append((job.event.epoch, job.epoch))
        self.busy.set()
        await anyio.sleep_forever()
        raise AssertionError

    def actor(self, ref: RunRef) -> RunActor:
        return RunActor(ref, self.harness.log, self.harness, self.clock, probation=self.probation)

    async def crash(self, ref: RunRef, actor: RunActor | None = None) -> None:
        """Execute a run until its effect starts, and stop like a killed worker."""
        self.busy = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon((actor or self.actor(ref)).run)
            await self.busy.wait()
            tasks.cancel_scope.cancel()

    async def events(self, ref: RunRef) -> list[Event]:
        return await self.harness.events(ref)


async def test_an_effect_that_kills_each_worker_fails_with_a_code() -> None:
    workers = CrashingWorkers()
    ref = await workers.harness.accept("one")
    for _ in range(EFFECT_CRASHES_MAX):
        workers.clock.now += DAY
        await workers.crash(ref)
    assert await workers.actor(ref).run() == "ended"
    end = end_of(await workers.events(ref))
    assert end.error is not None
    assert (end.status, end.error.code) == ("failed", CODE)
    assert f"{EFFECT_CRASHES_MAX} workers" in end.error.message
    assert len(workers.harness.executed) == EFFECT_CRASHES_MAX
    assert workers.epochs == [(1, number) for number in range(1, EFFECT_CRASHES_MAX + 1)]


async def test_the_pause_before_the_next_claim_grows() -> None:
    workers = CrashingWorkers()
    ref = await workers.harness.accept("one")
    pauses: list[float] = []
    for number in range(1, EFFECT_CRASHES_MAX):
        await workers.crash(ref)
        if number < PROBATION_CRASHES:
            continue
        with pytest.raises(NotYet) as found:
            await workers.actor(ref).run()
        pauses.append(found.value.delay_s)
        workers.clock.now += dt.timedelta(seconds=found.value.delay_s)
    assert pauses == sorted(set(pauses))
    assert all(0 < pause <= PAUSE_MAX_S for pause in pauses)
    # A run that waits is not claimed, so its log does not grow.
    assert types(await workers.events(ref)).count("run.claimed") == EFFECT_CRASHES_MAX - 1


async def test_a_cancellation_does_not_wait_for_the_pause() -> None:
    workers = CrashingWorkers()
    ref = await workers.harness.accept("one")
    for _ in range(PROBATION_CRASHES + 1):
        await workers.crash(ref)
        workers.clock.now += DAY
    workers.clock.now -= DAY
    actor = workers.actor(ref)
    actor.tell(workers.harness.command("cancel"))
    assert await actor.run() == "ended"
    assert end_of(await workers.events(ref)).status == "cancelled"


async def test_a_worker_executes_one_suspected_run_at_a_time() -> None:
    workers = CrashingWorkers()
    suspects = [await workers.harness.accept("one", run=name) for name in ("a", "b")]
    for ref in suspects:
        for _ in range(PROBATION_CRASHES):
            await workers.crash(ref)
            workers.clock.now += DAY
    workers.busy = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers.actor(suspects[0]).run)
        await workers.busy.wait()
        with pytest.raises(NotYet):
            await workers.actor(suspects[1]).run()
        tasks.cancel_scope.cancel()
    await workers.crash(suspects[1])


async def test_a_shutdown_does_not_count_as_a_crash() -> None:
    workers = CrashingWorkers()
    ref = await workers.harness.accept("one")
    for _ in range(2 * EFFECT_CRASHES_MAX):
        endings: list[ActivationEnd] = []
        actor = workers.actor(ref)

        async def perform(actor: RunActor = actor, endings: list[ActivationEnd] = endings) -> None:
            endings.append(await actor.run())

        workers.busy = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(perform)
            await workers.busy.wait()
            actor.release()
        assert endings == ["drained"]
    events = await workers.events(ref)
    assert types(events)[-2:] == ["run.claimed", "run.released"]
    assert set(crashes_of(events).effects.values()) == {0}


async def test_a_run_is_given_up_after_several_claims_without_an_event() -> None:
    workers = CrashingWorkers()
    ref = await workers.harness.accept("one")
    await workers.crash(ref)
    workers.clock.now += DAY
    events = await workers.events(ref)
    claim = next(event for event in events if event.type == "run.claimed")
    claims = [claim] * FRUITLESS_MAX
    await check_claim(workers, [*events, *claims[1:]])
    with pytest.raises(KeepsCrashing):
        await check_claim(workers, [*events, *claims])


async def check_claim(workers: CrashingWorkers, events: Sequence[Event]) -> None:
    ref = RunRef("acme", "r1")
    await ClaimCheck(ref, workers.harness, workers.probation).check(events, 0, workers.clock(), urgent=False)
