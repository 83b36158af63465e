"""Locks, semaphores, events and queues that a module keeps: each run has its own."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from callboard import ask, step, workflow
from callboard.languages.python import guard
from callboard.testing import Scenario

guard.install()


class Counted(asyncio.Semaphore):
    """A subclass of a user, with a further member."""

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name = name


SEMAPHORE = asyncio.Semaphore(1)
BOUNDED = asyncio.BoundedSemaphore(value=1)
LOCK = asyncio.Lock()
COUNTED = Counted("limit")
CONDITION = asyncio.Condition()
CONDITION_OF_LOCK = asyncio.Condition(LOCK)
EVENT = asyncio.Event()
QUEUE: asyncio.Queue[int] = asyncio.Queue(2)
SORTED: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
BARRIER = asyncio.Barrier(2)

HELD: dict[str, Any] = {
    "semaphore": SEMAPHORE,
    "bounded": BOUNDED,
    "lock": LOCK,
    "counted": COUNTED,
    "condition": CONDITION,
    "condition of a lock": CONDITION_OF_LOCK,
    "semaphore of anyio": anyio.Semaphore(1),
    "lock of anyio": anyio.Lock(),
    "limiter of anyio": anyio.CapacityLimiter(1),
}


@step
async def work(n: int) -> int:
    return n


@workflow
async def holding(name: str) -> bool:
    async with HELD[name]:
        return await ask("Go on?", bool)


@workflow
async def limited(name: str) -> list[int]:
    async def one(n: int) -> int:
        async with HELD[name]:
            return await work(n)

    return await asyncio.gather(*(one(n) for n in range(3)))


@pytest.mark.parametrize("name", HELD)
def test_runs_do_not_wait_for_each_other(name: str, scenario: Scenario) -> None:
    scenario.start(holding, input={"name": name})
    with Scenario(call_steps=True) as other:
        other.start(holding, input={"name": name})
        assert other.result.status == "waiting:human", other.result.error
        other.answer(True)
        assert other.result.output is True
    scenario.answer(True)
    assert scenario.result.output is True
    scenario.crash_everywhere()


@pytest.mark.parametrize("name", HELD)
def test_tasks_of_a_run_wait_for_each_other(name: str, scenario: Scenario) -> None:
    scenario.start(limited, input={"name": name})
    assert scenario.result.output == [0, 1, 2], scenario.result.error
    order = [(event.type, event.key) for event in scenario.events if event.type.startswith("effect.")]
    assert [kind for kind, _key in order] == ["effect.call", "effect.result"] * 3, "one after the other"
    scenario.crash_everywhere()


async def passing() -> list[Any]:
    """Use an event, a queue, a sorted queue, a barrier and a condition in two tasks."""

    async def give() -> None:
        await work(1)
        EVENT.set()
        for n in (3, 1, 2):
            await QUEUE.put(n)
            SORTED.put_nowait(n)
        await BARRIER.wait()
        async with CONDITION:
            CONDITION.notify_all()

    async def take() -> list[Any]:
        await EVENT.wait()
        found = [await QUEUE.get() for _ in range(3)]
        async with CONDITION:
            await BARRIER.wait()
            await CONDITION.wait()
        return [*found, SORTED.get_nowait(), QUEUE.maxsize, QUEUE.empty(), SORTED.qsize(), COUNTED.name]

    _, found = await asyncio.gather(give(), take())
    return found


@workflow
async def exchanging() -> list[Any]:
    return [EVENT.is_set(), *await passing()]


def test_each_run_has_its_own_events_queues_barriers_and_conditions(scenario: Scenario) -> None:
    expected = [False, 3, 1, 2, 1, 2, True, 2, "limit"]
    scenario.start(exchanging)
    assert scenario.result.output == expected, scenario.result.error
    scenario.crash_everywhere()
    assert not EVENT.is_set()
    assert SORTED.empty()


def test_primitives_outside_of_workflows_are_shared() -> None:
    async def body() -> list[bool]:
        async with SEMAPHORE, LOCK:
            return [SEMAPHORE.locked(), LOCK.locked()]

    assert asyncio.run(body()) == [True, True]
    assert not SEMAPHORE.locked()


ANYIO_EVENT = anyio.Event()


@workflow
async def setting_an_event_of_anyio() -> list[bool]:
    before = ANYIO_EVENT.is_set()
    ANYIO_EVENT.set()
    await ANYIO_EVENT.wait()
    return [before, ANYIO_EVENT.is_set()]


def test_an_event_of_anyio_is_set_for_its_run_only(scenario: Scenario) -> None:
    scenario.start(setting_an_event_of_anyio)
    assert scenario.result.output == [False, True]
    assert not ANYIO_EVENT.is_set()
    scenario.crash_everywhere()


CACHE: dict[str, asyncio.Lock] = {}


@workflow
async def caching() -> bool:
    """Keep a lock that a run has made for the next one."""
    async with CACHE.setdefault("lock", asyncio.Lock()):
        return await ask("Go on?", bool)


def test_a_lock_that_a_run_has_made_does_not_block_another_run(scenario: Scenario) -> None:
    scenario.start(caching)
    with Scenario() as other:
        other.start(caching).answer(True)
        assert other.result.output is True, other.result.error
    scenario.answer(True)
    assert scenario.result.output is True


@pytest.mark.parametrize("make", [lambda: asyncio.Semaphore(-1), lambda: asyncio.Barrier(0)])
def test_wrong_arguments_are_refused_as_before(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):
        make()


OPENED = asyncio.Event()
OPENED.set()
TOKENS: asyncio.Queue[str] = asyncio.Queue()
TOKENS.put_nowait("token")
RANKED: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
for number in (2, 1):
    RANKED.put_nowait(number)


@step
async def spoil() -> None:
    """Change events and queues in this process, which another process does not see."""
    OPENED.clear()
    while not TOKENS.empty():
        TOKENS.get_nowait()


@workflow
async def taking_a_token(spoils: bool) -> list[Any]:
    if spoils:
        await spoil()
    await OPENED.wait()
    token = await TOKENS.get()
    await ask("Go on?", bool)
    TOKENS.put_nowait(token)
    for _ in range(2):
        TOKENS.task_done()
    await TOKENS.join()
    return [token, await RANKED.get(), await RANKED.get()]


@pytest.mark.parametrize("spoils", [False, True])
def test_a_run_finds_events_and_queues_as_their_module_filled_them(scenario: Scenario, spoils: bool) -> None:
    scenario.start(taking_a_token, input={"spoils": spoils})
    with Scenario(call_steps=True) as other:
        other.start(taking_a_token, input={"spoils": spoils}).answer(True)
        assert other.result.output == ["token", 1, 2], other.result.error
    scenario.answer(True)
    assert scenario.result.output == ["token", 1, 2], scenario.result.error
    scenario.crash_everywhere()
