"""A new run is stored with its first turn and the command that activates it, in one batch or not at all."""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.errors import LogUnavailable, StoreFull
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Beside, Entry, FirstCommand, NoAnswer, Purged
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.lib.threads import on_the_loop
from callboard.runtime.run.activation import ActivationEnd
from callboard.runtime.run.actor import RunActor
from callboard.runtime.run.new_run import NewRun
from callboard.runtime.run.pace import Pace
from callboard.testing.virtual_time import VIRTUAL
from tests.support.run_harness import RunHarness, types
from tests.support.sample_interpreters import effect

FIRST_TURN = ["run.accepted", "run.claimed", "run.start", "node.enter", "effect.call"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


class CountingLog(MemoryLog):
    """Records the types of the events of each append, and the messages beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[tuple[list[str], Beside | None]] = []
        self.failure: Callable[[], Exception] | None = None

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        if self.failure is not None:
            raise self.failure()
        self.puts.append(([entry.type for entry in entries], beside))
        return await super().put(ref, entries, after, beside)


async def one_step(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "do")
    node.exit("ok")
    return End("completed")


async def compute_first(stage: Stage) -> End:
    assert await stage.compute(lambda: 7) == 7
    return await one_step(stage)


async def send_large_request(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "do", text="x" * 2000)
    node.exit("ok")
    return End("completed")


async def end_at_once(_stage: Stage) -> End:
    return End("completed", "at once")


async def fail(_stage: Stage) -> End:
    raise ValueError("a fault of the interpreter")


class Starts:
    """New runs at one worker."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        plays = {
            "one_step": one_step,
            "computes": compute_first,
            "ends": end_at_once,
            "fails": fail,
            "large": send_large_request,
        }
        self.log = log or CountingLog()
        self.harness = RunHarness(plays, log=self.log, pace=Pace(beside=on_the_loop), always_replay=False)

    def new(self, play: str, run: str = "r1") -> NewRun:
        start = StartRun(DefinitionSource(language="play", source=play), run_id=run)
        definition = ev.DefinitionRef("play", "", play, play)
        accepted = ev.RunAccepted(definition=definition, start=msgspec.to_builtins(start), seed="seed")
        return NewRun(RunRef("acme", run), accepted, definition=play, cause=5, command=FirstCommand("w1"))

    def actor(self, new: NewRun) -> RunActor:
        return RunActor(new.ref, self.log, self.harness, self.harness.clock, new=new)

    async def perform(self, new: NewRun) -> tuple[ActivationEnd, bool]:
        """Perform a run; return the end of the activation, and whether the run was stored."""
        ending = await self.actor(new).run()
        return ending, await new.wait_until_stored()


async def test_a_run_and_its_first_turn_are_stored_in_one_append() -> None:
    log = CountingLog()
    starts = Starts(log)
    new = starts.new("one_step")
    assert await starts.perform(new) == ("ended", True)
    assert log.puts[0] == (FIRST_TURN, FirstCommand("w1"))
    assert [beside for _, beside in log.puts[1:]] == [None] * (len(log.puts) - 1)
    events = await starts.harness.events(new.ref)
    assert types(events) == [*FIRST_TURN, "effect.result", "node.exit", "run.end"]
    assert [(event.n, event.epoch, event.cause) for event in events[:2]] == [(1, 0, 5), (2, 1, 0)]


async def test_a_run_that_ends_in_its_first_turn_is_stored_in_one_append() -> None:
    log = CountingLog()
    starts = Starts(log)
    assert await starts.perform(starts.new("ends")) == ("ended", True)
    assert [types for types, _ in log.puts] == [["run.accepted", "run.claimed", "run.start", "run.end"]]


async def test_an_exception_of_the_interpreter_ends_the_run() -> None:
    starts = Starts()
    new = starts.new("fails")
    assert await starts.perform(new) == ("ended", True)
    assert types(await starts.harness.events(new.ref))[-2:] == ["run.failed", "run.end"]


async def test_a_slow_first_turn_does_not_delay_the_acceptance() -> None:
    log = CountingLog()
    starts = Starts(log)
    assert await starts.perform(starts.new("computes")) == ("ended", True)
    assert [types for types, _ in log.puts][:2] == [
        ["run.accepted", "run.claimed", "run.start"],
        ["node.enter", "effect.call"],
    ]


async def test_large_values_are_stored_only_for_a_run_that_is_stored() -> None:
    log = CountingLog()
    starts = Starts(log)
    starts.harness.inline_bytes_max = 600
    new = starts.new("large")
    assert await starts.perform(new) == ("ended", True)
    assert [types for types, _ in log.puts][:2] == [FIRST_TURN[:-1], ["effect.call"]]
    starts.harness.inline_bytes_max = 100
    log.puts.clear()
    assert await starts.perform(starts.new("one_step", "r2")) == ("not_stored", False)
    assert log.puts == []


async def test_a_run_whose_id_is_taken_changes_nothing() -> None:
    starts = Starts()
    await starts.perform(starts.new("ends"))
    before = await starts.harness.events(RunRef("acme", "r1"))
    assert await starts.perform(starts.new("one_step")) == ("not_stored", False)
    assert await starts.harness.events(RunRef("acme", "r1")) == before
    assert starts.harness.executed == []


async def test_a_run_whose_id_was_purged_is_not_stored() -> None:
    log = CountingLog()
    starts = Starts(log)
    log.failure = Purged
    assert await starts.perform(starts.new("one_step")) == ("not_stored", False)
    assert starts.harness.executed == []


async def test_the_sender_learns_at_once_that_the_store_is_full() -> None:
    starts = Starts()
    starts.log.bytes_max = 10
    new = starts.new("one_step")
    began = anyio.current_time()
    assert await starts.actor(new).run() == "not_stored"
    with pytest.raises(StoreFull):
        await new.wait_until_stored()
    assert anyio.current_time() - began < 1


async def test_the_sender_learns_that_the_log_does_not_answer() -> None:
    log = CountingLog()
    starts = Starts(log)
    log.failure = NoAnswer
    new = starts.new("one_step")
    assert await starts.actor(new).run() == "not_stored"
    with pytest.raises(LogUnavailable):
        await new.wait_until_stored()


async def test_an_accepted_run_waits_for_space_in_the_store() -> None:
    starts = Starts()
    new = starts.new("one_step")
    actor = starts.actor(new)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        assert await new.wait_until_stored()
        starts.log.bytes_max = 10
        await anyio.sleep(3600)
        starts.log.bytes_max = None
    assert types(await starts.harness.events(new.ref))[-1] == "run.end"


async def test_a_worker_that_drains_stores_no_new_run() -> None:
    starts = Starts()
    new = starts.new("one_step")
    actor = starts.actor(new)
    actor.drain()
    assert await actor.run() == "drained"
    assert not await new.wait_until_stored()
    assert await starts.harness.events(new.ref) == []
