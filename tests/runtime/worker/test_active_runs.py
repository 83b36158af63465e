"""Active runs: their commands are acknowledged when the log has the results, and later alarms are delivered again."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from callboard.bus.events import RunParked
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.runtime.worker.active_runs import ActiveRuns
from tests.support.run_harness import RunHarness
from tests.support.sample_interpreters import effect


async def sleep_an_hour(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "do")
    await node.sleep("nap", stage.now() + dt.timedelta(hours=1))
    node.exit("ok")
    return End("completed")


@dataclass
class RecordingRouter:
    """Records the commands that are left when a run is released, and the answers to commands."""

    taken: list[int] = field(default_factory=list[int])
    answers: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def take(self, delivery: Delivery) -> None:
        self.taken.append(delivery.sequence)

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        raise AssertionError(f"{verb} {delivery.sequence} of {ref.run} has no other home")

    def refuse(self, ref: RunRef, verb: str, code: str, message: str) -> None:
        raise AssertionError(f"{verb} of {ref.run} was refused: {code}")

    def pass_to_newer(self, deliveries: Sequence[Delivery]) -> bool:
        raise AssertionError("no run here needs a newer version")

    def delivery(self, sequence: int) -> Delivery:
        return Delivery("cb.cmd", b"{}", {}, sequence, 1, 0, str(sequence), self._record_answer)

    def _record_answer(self, reply: str, body: bytes) -> None:
        self.answers.append((reply, body))


async def activate_until_released(
    harness: RunHarness, router: RecordingRouter, ref: RunRef, first: int, *alarms: int
) -> None:
    """Activate a run by a start, deliver alarms, and wait until the run is released."""
    runs = ActiveRuns(harness.log, harness, router, ack_wait_s=60, runs_active_max=1)
    async with anyio.create_task_group() as tasks:
        await tasks.start(runs.run)
        runs.activate(ref, router.delivery(first), "start")
        for alarm in alarms:
            runs.tell(ref, router.delivery(alarm), "alarm")
        while ref in runs:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_an_alarm_stored_after_the_parking_is_delivered_again() -> None:
    harness, router = RunHarness({"naps": sleep_an_hour}, always_replay=False), RecordingRouter()
    ref = await harness.accept("naps")
    await activate_until_released(harness, router, ref, 0, 1, 1_000)
    # The first alarm is from before the parking, the second from after it.
    assert router.answers == [("0", b"+ACK"), ("1", b"+ACK")]
    assert router.taken == [1_000]


async def test_an_alarm_during_a_redelivered_start_is_delivered_again() -> None:
    harness, router = RunHarness({"naps": sleep_an_hour}, always_replay=False), RecordingRouter()
    ref = await harness.accept("naps")
    assert await harness.perform(ref) == "parked"
    await activate_until_released(harness, router, ref, 1, 1_000)
    assert (router.answers, router.taken) == ([("1", b"+ACK")], [1_000])


async def test_a_run_of_this_admission_begins_without_reading_its_log_or_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, router = RunHarness({"naps": sleep_an_hour}, always_replay=False), RecordingRouter()
    ref = await harness.accept("naps")
    first = await harness.log.last(ref)
    assert first is not None

    async def read(*_asked: object) -> list[Recorded]:
        raise AssertionError("its first event is known")

    monkeypatch.setattr(harness.log, "read", read)
    runs = ActiveRuns(harness.log, harness, router, ack_wait_s=60, runs_active_max=1)
    async with anyio.create_task_group() as tasks:
        await tasks.start(runs.run)
        runs.begin(first)
        # The command arrives when the run is already active, and is acknowledged with it.
        runs.tell(ref, router.delivery(1), "start")
        while ref in runs:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    last = await harness.log.last(ref)
    assert last is not None
    assert last.event.type == RunParked.type
    assert router.answers == [("1", b"+ACK")]


@pytest.mark.parametrize("sequence", [1, 1_000])
async def test_an_alarm_for_a_run_that_ends_is_acknowledged(sequence: int) -> None:
    async def end_after_effect(stage: Stage) -> End:
        node = stage.enter("a")
        await effect(node, "do")
        node.exit("ok")
        return End("completed")

    harness, router = RunHarness({"ends": end_after_effect}, always_replay=False), RecordingRouter()
    ref = await harness.accept("ends")
    await activate_until_released(harness, router, ref, 0, sequence)
    assert (router.answers, router.taken) == ([("0", b"+ACK"), (str(sequence), b"+ACK")], [])
