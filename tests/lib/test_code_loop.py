"""The code loop: coroutines of users run on a separate thread, which is freed if one of them holds it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from callboard.lib.code_loop import CodeHeld, CodeLoop
from tests.support.patience import PATIENCE_S, until

LOOK_S = 0.01

NAME: ContextVar[str] = ContextVar("name")

OVER = threading.Event()
"""Set after each test, which ends code that cannot be interrupted."""


@pytest.fixture
async def code() -> AsyncIterator[CodeLoop]:
    OVER.clear()
    code = CodeLoop(look_s=LOOK_S)
    with anyio.fail_after(PATIENCE_S):
        yield code
    OVER.set()
    await code.aclose()


async def spin() -> None:
    while True:
        pass


async def spin_in_a_task() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(spin())


async def spin_stubbornly() -> None:
    """Compute without end, also when interrupted."""
    while not OVER.is_set():
        try:
            while not OVER.is_set():
                pass
        except BaseException:
            continue


async def block() -> None:
    """Block in a function in C, which no exception ends."""
    OVER.wait()


async def current_loop() -> tuple[int, int]:
    return id(asyncio.get_running_loop()), threading.get_ident()


async def test_coroutines_share_one_loop_that_is_not_the_callers(code: CodeLoop) -> None:
    first = await code.perform(current_loop)
    assert await code.perform(current_loop) == first
    assert first[1] != threading.get_ident()


async def test_a_coroutine_has_the_context_of_its_caller(code: CodeLoop) -> None:
    async def name() -> str:
        found = NAME.get()
        NAME.set("changed")
        return found

    NAME.set("given")
    assert await code.perform(name) == "given"
    assert NAME.get() == "given"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_an_error_of_a_coroutine_is_raised_and_the_loop_continues(code: CodeLoop, error: BaseException) -> None:
    async def fail() -> None:
        raise error

    before = await code.perform(current_loop)
    with pytest.raises(type(error)):
        await code.perform(fail)
    assert await code.perform(current_loop) == before


async def test_libraries_of_asyncio_and_anyio_work(code: CodeLoop) -> None:
    lock = asyncio.Lock()

    async def work() -> str:
        async with lock:
            with anyio.move_on_after(0.001):
                await anyio.sleep_forever()
            return await anyio.to_thread.run_sync(lambda: "done")

    found: list[str] = []

    async def perform() -> None:
        found.append(await code.perform(work))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(perform)
        tasks.start_soon(perform)
    assert found == ["done", "done"]


async def test_a_cancellation_reaches_the_coroutine_and_its_clean_up_is_awaited(code: CodeLoop) -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(code.perform, work)
        await until(begun.is_set)
        tasks.cancel_scope.cancel()
    assert cleaned.is_set()


@pytest.mark.parametrize("held", [spin, spin_in_a_task])
async def test_an_endless_computation_is_interrupted_while_the_caller_continues(code: CodeLoop, held: Any) -> None:
    before, turns = await code.perform(current_loop), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.sleep(LOOK_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        with pytest.raises(CodeHeld):
            await code.perform(held)
        tasks.cancel_scope.cancel()
    assert turns > 2
    assert await code.perform(current_loop) == before


async def test_a_timeout_interrupts_a_coroutine_that_holds_the_loop(code: CodeLoop) -> None:
    before = await code.perform(current_loop)
    with anyio.move_on_after(LOOK_S) as scope:
        await code.perform(spin)
    assert scope.cancelled_caught
    assert await code.perform(current_loop) == before


@pytest.mark.parametrize("held", [spin_stubbornly, block])
async def test_a_blocked_thread_is_abandoned_and_other_coroutines_start_again(code: CodeLoop, held: Any) -> None:
    begun: list[tuple[int, int]] = []
    release = threading.Event()

    async def other() -> str:
        begun.append(await current_loop())
        await until(release.is_set)
        return "done"

    found: list[str] = []

    async def perform() -> None:
        found.append(await code.perform(other))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(perform)
        await until(lambda: len(begun) == 1)
        with pytest.raises(CodeHeld):
            await code.perform(held)
        await until(lambda: len(begun) == 2)
        release.set()
    assert found == ["done"]
    assert begun[0] != begun[1]


async def test_remaining_tasks_are_cancelled_at_the_end() -> None:
    code, cleaned = CodeLoop(), threading.Event()

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    kept: list[asyncio.Task[None]] = []

    async def begin() -> None:
        kept.append(asyncio.create_task(stay()))
        await asyncio.sleep(0)

    await code.perform(begin)
    await code.aclose()
    assert cleaned.is_set()
