"""The garbage collector settings of a worker. A released run leaves no reference cycles."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callboard import ask, signal
from callboard.actors.kinds.step import StepRunner
from callboard.languages.language import End, Stage
from callboard.runtime.worker.collector import YOUNG_OBJECTS, settled_collector
from callboard.testing.virtual_time import VIRTUAL
from tests.support.python_programs import play_of, work
from tests.support.sample_interpreters import after, effect
from tests.support.simulation import harness_for


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_the_settings_apply_inside_the_block_only() -> None:
    before = gc.get_threshold()
    with settled_collector():
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_cycles_are_still_collected() -> None:
    with settled_collector():
        # A callback, because a call of the weak reference would keep the cycle alive during a collection.
        collected: list[object] = []
        cycle = weakref.ref(Cycle(), collected.append)
        kept: list[list[int]] = []
        while not collected:
            kept.append([])
            assert len(kept) <= 2 * YOUNG_OBJECTS
        assert cycle() is None


async def two_nodes(stage: Stage) -> End:
    for name in "ab":
        node = stage.enter(name)
        await effect(node, "do", 1)
        node.exit("ok")
    return End("completed")


async def two_waits(stage: Stage) -> End:
    """Wait in two tasks, one of them shielded, with a question and a deadline open."""
    node = stage.enter("a")

    async def sleep() -> None:
        async with stage.shield():
            await node.sleep("sleep", after(stage.now(), 600))

    await stage.join(stage.spawn(sleep()), stage.spawn(node.signal("wait", "go", None, after(stage.now(), 900))))
    node.exit("ok")
    return End("completed")


async def _ask_in_time(name: str) -> int:
    await work(name, fails=False)
    async with asyncio.timeout(3600):
        return await ask(name, int)


async def _ask_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_ask_in_time("c"))
        group.create_task(asyncio.sleep(7200))


async def _wait_for_everything() -> None:
    """Wait for everything that a workflow in Python can wait for."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock = asyncio.Lock()
    await lock.acquire()
    await asyncio.gather(
        _ask_in_time("a"),
        asyncio.gather(_ask_in_time("b"), signal("go")),
        _ask_in_a_group(),
        asyncio.shield(asyncio.sleep(4000)),
        asyncio.wait_for(queue.get(), 9999),
        asyncio.wait([asyncio.ensure_future(lock.acquire())], timeout=10),
        *asyncio.as_completed([asyncio.sleep(5000)]),
    )


workflow_in_python = play_of(_wait_for_everything)


@pytest.mark.parametrize(
    ("play", "ending"), [(two_nodes, "ended"), (two_waits, "parked"), (workflow_in_python, "parked")]
)
async def test_a_released_run_leaves_no_cycles(play: Callable[[Stage], Awaitable[End]], ending: str) -> None:
    references: list[weakref.ref[Any]] = []

    async def play_with_references(stage: Any) -> End:
        references.extend(map(weakref.ref, (stage, stage.waits, stage.driver)))
        return await play(stage)

    harness = harness_for(play_with_references, kinds={"step": StepRunner().carry})
    actor = harness.actor(await harness.accept("p"))
    gc.disable()
    try:
        assert await actor.run() == ending
        references.append(weakref.ref(actor))
        del actor, harness.acting
        assert [reference() for reference in references] == [None] * 4
    finally:
        gc.enable()
