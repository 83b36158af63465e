"""A step costs one commit, and nothing outside begins before the log holds what it follows from (laws 3 and 4)."""

import datetime as dt
from collections.abc import Callable, Sequence

import anyio
import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.errors import LogUnreadable, RunLost
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Behind, Beside, Entry
from callboard.bus.log.recorded import Recorded, readable
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Stage
from callboard.runtime.run.activation import Command
from callboard.runtime.run.log import RunLog
from tests.support.run_harness import RunHarness, end_of
from tests.support.sample_interpreters import effect

STEPS = 10


async def chain(stage: Stage) -> End:
    """A sequence of nodes, each with one effect."""
    for i in range(STEPS):
        node = stage.enter(f"n{i}")
        await effect(node, "do")
        node.exit("ok")
    return End("completed")


class WatchedLog(MemoryLog):
    """A log that notes every append, and holds one back that stores an event of a key."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[list[str]] = []
        self.holds: Callable[[Entry], bool] = lambda _entry: False
        self.held = anyio.Event()
        self.go_on = anyio.Event()

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        self.puts.append([entry.type for entry in entries])
        if any(self.holds(entry) for entry in entries):
            self.held.set()
            await self.go_on.wait()
        return await super().put(ref, entries, after, beside)


async def test_a_step_costs_one_commit() -> None:
    log = WatchedLog()
    harness = RunHarness({"chain": chain}, log=log, always_replay=False)
    ref = await harness.accept("chain")
    del log.puts[:]
    await harness.perform(ref)
    steps = [put for put in log.puts if "effect.result" in put]
    assert steps == [
        *[["effect.result", "node.exit", "node.enter", "effect.call"]] * (STEPS - 1),
        ["effect.result", "node.exit", "run.end"],
    ]
    # And a claim, a start and the first intent.
    assert len(log.puts) <= STEPS + 2


def outcome_of(n: int) -> Callable[[Entry], bool]:
    """Whether an entry is the outcome of the n-th step."""
    return lambda entry: entry.type == "effect.result" and f'"n{n}#'.encode() in entry.data


async def test_no_effect_begins_while_the_outcome_before_it_is_not_acknowledged() -> None:
    log = WatchedLog()
    harness = RunHarness({"chain": chain}, log=log, always_replay=False)
    ref = await harness.accept("chain")
    log.holds = outcome_of(3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.perform, ref)
        await log.held.wait()
        await anyio.wait_all_tasks_blocked()
        assert harness.executed == [f"n{i}#1.1!do" for i in range(4)], "the fifth waits for the log"
        log.go_on.set()
    assert harness.executed == [f"n{i}#1.1!do" for i in range(STEPS)]
    assert end_of(await harness.events(ref)).status == "completed"


async def test_decisions_after_a_refused_append_are_discarded() -> None:
    log = WatchedLog()
    harness = RunHarness({"chain": chain}, log=log, always_replay=False)
    ref = await harness.accept("chain")
    log.holds = outcome_of(3)
    lost = False

    async def perform() -> None:
        nonlocal lost
        try:
            await harness.perform(ref)
        except RunLost:
            lost = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(perform)
        await log.held.wait()
        # Another worker takes the run before the outcome is stored.
        log.holds = lambda _entry: False
        rival = RunLog(log, ref, writer="rival")
        rival.continue_from(await log.read(ref))
        rival.epoch += 1
        rival.state(ev.RunClaimed(worker="rival", epoch=rival.epoch))
        await rival.append_queued()
        log.go_on.set()
    assert lost
    assert harness.executed == [f"n{i}#1.1!do" for i in range(4)]
    # The next owner executes the fourth step again, with the same key, and continues.
    await harness.perform(ref)
    assert harness.executed[4:] == [f"n{i}#1.1!do" for i in range(3, STEPS)]
    events = await harness.events(ref)
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    assert end_of(events).status == "completed"


async def cancelled_while_busy(stage: Stage) -> End:
    """A step whose outcome calls another one off that is under way."""
    long, short = stage.enter("long"), stage.enter("short")
    task = stage.spawn(effect(long, "hang", hang=True))
    await effect(short, "do")
    stage.cancel(task, ev.Failure(code="enough", message="enough", type="cancellation"))
    await stage.join(task)
    long.exit("cancelled")
    short.exit("ok")
    return End("completed")


@pytest.mark.parametrize("stored", [False, True])
async def test_an_effect_is_cancelled_only_after_the_reason_is_recorded(stored: bool) -> None:
    log = WatchedLog()
    stopped = anyio.Event()

    async def calls(_job: object, request: object) -> tuple[object, object]:
        if isinstance(request, dict) and request.get("hang"):
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()
        return None, None

    harness = RunHarness({"p": cancelled_while_busy}, log=log, calls=calls, always_replay=False)
    ref = await harness.accept("p")
    log.holds = lambda entry: entry.type == "effect.cancelled"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.perform, ref)
        await log.held.wait()
        await anyio.wait_all_tasks_blocked()
        assert not stopped.is_set()
        if stored:
            log.go_on.set()
            await stopped.wait()
        else:
            tasks.cancel_scope.cancel()
    assert stopped.is_set()


async def answered(stage: Stage) -> End:
    node = stage.enter("a")
    signal = await node.signal("signal", "go")
    await effect(node, "do")
    node.exit("ok")
    return End("completed", signal.data)


async def test_a_redelivered_command_is_acknowledged_when_it_is_recorded() -> None:
    log = WatchedLog()
    harness = RunHarness({"answered": answered}, log=log, always_replay=False)
    ref = await harness.accept("answered")
    log.holds = lambda entry: entry.type == "signal.received"
    done: list[str] = []
    body = msgspec.json.encode({"name": "go", "data": 1})
    first = Command(77, "signal", body, done=lambda: done.append("first"))
    again = Command(77, "signal", body, done=lambda: done.append("again"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(harness.perform, ref, first, again)
        await log.held.wait()
        await anyio.wait_all_tasks_blocked()
        assert done == [], "whoever died now would leave nobody who knows of it"
        log.go_on.set()
    assert done == ["first", "again"]
    assert [event.cause for event in await harness.events(ref) if event.cause] == [77]


async def test_a_fork_applies_and_stores_the_commands_of_its_origin() -> None:
    """Causes are places in the stream where an origin was recorded: of one that was imported they say nothing here."""

    async def calls(_job: object, _request: object) -> tuple[object, object]:
        return "long " * 100, None

    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        first = await effect(node, "first")
        signal = await node.signal("signal", "go")
        second = await effect(node, "second")
        node.exit("ok")
        return End("completed", [first == second, signal.data])

    harness = RunHarness({"p": play}, calls=calls, inline_bytes_max=300, always_replay=False)
    origin = await harness.accept("p", run="origin")
    body = msgspec.json.encode({"name": "other"})
    assert await harness.perform(origin, Command(77, "signal", body)) == "parked"
    shared = len(await harness.events(origin)) - 1
    fork = await harness.accept("p", run="fork", forked_from=ev.ForkedFrom("origin", shared, execution_id="origin"))
    told = Command(77, "signal", msgspec.json.encode({"name": "go", "data": 1}))
    assert await harness.perform(fork, told) == "ended"
    events = await harness.events(fork)
    assert all(event.type in ev.TYPES for event in events), "every large value is where its event says"
    assert end_of(events).output == [True, 1]


class LaggingLog(MemoryLog):
    """A log that reads runs from a replica, which lacks the latest events."""

    lacks = 0

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        found = await super().read(ref, after, limit, bytes_max)
        return found[: len(found) - self.lacks]


async def test_a_run_that_was_not_read_up_to_its_end_is_not_claimed() -> None:
    log = LaggingLog()
    harness = RunHarness({"answered": answered}, log=log, always_replay=False)
    ref = await harness.accept("answered")
    assert await harness.perform(ref) == "parked"
    before = await harness.events(ref)
    log.lacks = 1
    with pytest.raises(
        Behind, match=rf"up to sequence {len(before) - 1}, but its last event has sequence {len(before)}"
    ):
        await harness.perform(ref)
    log.lacks = 0
    assert await harness.events(ref) == before
    told = Command(77, "signal", msgspec.json.encode({"name": "go", "data": 1}))
    assert await harness.perform(ref, told) == "ended"


async def test_a_run_without_its_beginning_cannot_be_read() -> None:
    harness = RunHarness({"chain": chain}, always_replay=False)
    await harness.play("chain")
    recorded = await harness.log.read(RunRef("acme", "r1"))
    with pytest.raises(LogUnreadable, match="number 2, after none"):
        readable(recorded[1:])
    with pytest.raises(LogUnreadable, match="number 4, after number 2"):
        readable([*recorded[:2], *recorded[3:]])
    assert readable(recorded) == recorded


async def sleeper(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "long")
    await node.sleep("nap", stage.now() + dt.timedelta(hours=1))
    node.exit("ok")
    return End("completed")


async def parent(stage: Stage) -> End:
    node = stage.enter("a")
    await effect(node, "long")
    end = await node.child("kid", {"language": "play", "source": "kid"}, None)
    node.exit("ok")
    return End("completed", end.output)


async def kid(_stage: Stage) -> End:
    return End("completed", 7)


@pytest.mark.parametrize("play", ["sleeper", "parent"])
async def test_a_worker_that_lost_the_run_acknowledges_nothing(play: str) -> None:
    """A worker loses its connection during an effect and does not learn that another one has parked the run.

    It then gets the message that wakes the run.
    """
    back, calls, done = anyio.Event(), 0, list[str]()

    async def call(_job: object, _request: object) -> tuple[object, object]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await back.wait()
        return {}, None

    harness = RunHarness({"sleeper": sleeper, "parent": parent, "kid": kid}, calls=call, always_replay=False)
    ref = await harness.accept(play)
    first = harness.actor(ref)
    lost = False

    async def perform() -> None:
        nonlocal lost
        try:
            await first.run()
        except RunLost:
            lost = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(perform)
        await anyio.wait_all_tasks_blocked()
        assert await harness.perform(ref) == "parked"
        if play == "sleeper":
            verb, body = "alarm", b"{}"
        else:
            assert await harness.perform(harness.children.called[0]) == "ended"
            (told,) = harness.children.run_messages
            verb, body = told.verb, told.body
        first.tell(Command(500, verb, body, done=lambda: done.append(verb)))
        await anyio.wait_all_tasks_blocked()
        back.set()
    assert (lost, done) == (True, [])


async def test_a_fork_continues_with_its_own_definition() -> None:
    harness = RunHarness({"answered": answered, "other": answered}, always_replay=False)
    origin = await harness.accept("answered", run="origin")
    assert await harness.perform(origin) == "parked"
    shared = len(await harness.events(origin)) - 1
    fork = await harness.accept("other", run="fork", forked_from=ev.ForkedFrom("origin", shared))
    assert await harness.perform(fork) == "parked"
    own = [item.event for item in await harness.log.read(fork) if item.ref == fork]
    assert {event.definition for event in own} == {"other"}


@pytest.mark.parametrize("verb", ["wake", "usage", "release", "cancel", "kill"])
async def test_a_payload_nested_too_deep_does_not_break_the_run(verb: str) -> None:
    harness = RunHarness({"answered": answered}, always_replay=False)
    ref = await harness.accept("answered")
    deep = Command(500, verb, b'{"key":' + b"[" * 100_000)
    assert await harness.perform(ref, deep) == "parked"


async def test_an_existing_child_is_not_started_again_when_its_parent_resumes() -> None:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        long = stage.spawn(effect(node, "long"))
        end = await node.child("kid", {"language": "play", "source": "kid"}, None)
        await stage.join(long)
        node.exit("ok")
        return End("completed", end.output)

    go_on = anyio.Event()

    async def call(_job: object, _request: object) -> tuple[object, object]:
        await go_on.wait()
        return {}, None

    harness = RunHarness({"p": play, "kid": kid}, calls=call, always_replay=False)
    ref = await harness.accept("p")
    async with anyio.create_task_group() as tasks:
        actor = harness.actor(ref)
        tasks.start_soon(actor.run)
        for verb in ("pause", "resume"):
            await anyio.wait_all_tasks_blocked()
            actor.tell(harness.command(verb))
        await anyio.wait_all_tasks_blocked()
        assert len(harness.children.called) == 1
        await harness.perform(harness.children.called[0])
        (told,) = harness.children.run_messages
        actor.tell(Command(5_000, told.verb, told.body))
        go_on.set()
    assert end_of(await harness.events(ref)).output == 7
