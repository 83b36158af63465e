"""What keeps a run active, and what comes meanwhile to wake it: acknowledged when the log has what it led to."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from callboard.bus.events import RunParked
from callboard.bus.log.port import Recorded
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.runtime.worker.active_runs import ActiveRuns
from tests.support.run_harness import RunHarness
from tests.support.sample_interpreters import effect


async def naps(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "do")
    await node.sleep("nap", stage.now() + dt.timedelta(hours=1))
    node.exit("ok")
    return End("completed")


@dataclass
class Post:
    """Where commands go that a run was left with, and what was said of each."""

    taken: list[int] = field(default_factory=list[int])
    said: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def take(self, delivery: Delivery) -> None:
        self.taken.append(delivery.sequence)

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        raise AssertionError(f"{verb} {delivery.sequence} of {ref.run} has no other home")

    def refuse(self, ref: RunRef, verb: str, code: str, message: str) -> None:
        raise AssertionError(f"{verb} of {ref.run} was refused: {code}")

    def pass_to_newer(self, deliveries: Sequence[Delivery]) -> bool:
        raise AssertionError("no run here needs a newer version")

    def delivery(self, sequence: int) -> Delivery:
        return Delivery("cb.cmd", b"{}", {}, sequence, 1, 0, str(sequence), self._heard)

    def _heard(self, reply: str, body: bytes) -> None:
        self.said.append((reply, body))


async def let_go(harness: RunHarness, post: Post, ref: RunRef, first: int, *alarms: int) -> None:
    """Activate a run by a start, have alarms come meanwhile, and let it come to its stop."""
    runs = ActiveRuns(harness.log, harness, post, ack_wait_s=60, runs_active_max=1)
    async with anyio.create_task_group() as tasks:
        await tasks.start(runs.run)
        runs.activate(ref, post.delivery(first), "start")
        for alarm in alarms:
            runs.tell(ref, post.delivery(alarm), "alarm")
        while ref in runs:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_an_alarm_that_comes_when_the_run_has_been_parked_is_taken_up() -> None:
    harness, post = RunHarness({"naps": naps}, always_replay=False), Post()
    ref = await harness.accept("naps")
    await let_go(harness, post, ref, 0, 1, 1_000)
    # The one before was for a park that is over; the other one may be of this.
    assert post.said == [("0", b"+ACK"), ("1", b"+ACK")]
    assert post.taken == [1_000]


async def test_an_alarm_that_comes_beside_a_start_that_comes_again_is_taken_up() -> None:
    harness, post = RunHarness({"naps": naps}, always_replay=False), Post()
    ref = await harness.accept("naps")
    assert await harness.perform(ref) == "parked"
    await let_go(harness, post, ref, 1, 1_000)
    assert (post.said, post.taken) == ([("1", b"+ACK")], [1_000])


async def test_a_run_that_was_admitted_here_begins_without_being_read_or_called_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, post = RunHarness({"naps": naps}, always_replay=False), Post()
    ref = await harness.accept("naps")
    first = await harness.log.last(ref)
    assert first is not None

    async def read(*_asked: object) -> list[Recorded]:
        raise AssertionError("its first event is known")

    monkeypatch.setattr(harness.log, "read", read)
    runs = ActiveRuns(harness.log, harness, post, ack_wait_s=60, runs_active_max=1)
    async with anyio.create_task_group() as tasks:
        await tasks.start(runs.run)
        runs.begin(first)
        # What calls for it comes meanwhile, and keeps it active from then on.
        runs.tell(ref, post.delivery(1), "start")
        while ref in runs:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    last = await harness.log.last(ref)
    assert last is not None
    assert last.event.type == RunParked.type
    assert post.said == [("1", b"+ACK")]


@pytest.mark.parametrize("sequence", [1, 1_000])
async def test_what_comes_to_a_run_that_ends_is_done_with(sequence: int) -> None:
    async def ends(stage: Stage) -> End:
        node = stage.enter("a")
        await effect(node, "do")
        node.exit("ok")
        return End("completed")

    harness, post = RunHarness({"ends": ends}, always_replay=False), Post()
    ref = await harness.accept("ends")
    await let_go(harness, post, ref, 0, sequence)
    assert (post.said, post.taken) == ([("0", b"+ACK"), (str(sequence), b"+ACK")], [])
