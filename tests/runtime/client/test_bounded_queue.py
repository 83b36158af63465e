"""Queues for slow readers: ordered, and bounded in number and bytes."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message

from callboard.runtime.client.bounded_queue import BoundedQueue
from callboard.surfaces.http import live
from callboard.surfaces.http.live import Live

PATIENCE_S = 30.0
LARGE = b"x" * 1_000_000


async def run_other_tasks() -> None:
    """Let the other tasks run until they wait."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def test_a_writer_waits_for_a_slow_reader_that_gets_every_item() -> None:
    queue, taken = BoundedQueue[bytes](100, 10, len), list[bytes]()

    async def write() -> None:
        for n in range(20):
            await queue.put(b"%04d" % n)
        queue.end()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async for item in queue:
                taken.append(item)
                await run_other_tasks()
                assert queue.bytes <= 12
    assert taken == [b"%04d" % n for n in range(20)]
    assert not queue.put_nowait(b"late")


async def test_every_waiting_writer_gets_its_turn() -> None:
    queue, taken = BoundedQueue[bytes](1, 10, len), set[bytes]()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(queue.put, b"%d" % n)
            while len(taken) < 5:
                await run_other_tasks()
                taken.add(await anext(queue))


async def test_items_beyond_the_bound_of_number_or_bytes_are_dropped() -> None:
    few, small = BoundedQueue[bytes](2, 1_000, len), BoundedQueue[bytes](100, 10, len)
    assert [few.put_nowait(b"x") for _ in range(3)] == [True, True, False]
    assert [small.put_nowait(LARGE) for _ in range(2)] == [True, False]
    assert await anext(small) == LARGE
    assert small.put_nowait(b"x")


@pytest.mark.parametrize("pieces", [{}, {"r": "cb.live.acme.r.*.model.delta"}])
async def test_a_response_to_a_blocked_reader_buffers_a_bounded_number_of_bytes(pieces: dict[str, str]) -> None:
    frames_produced, blocked = 0, anyio.Event()

    class Subscription:
        async def unsubscribe(self) -> None: ...

    class SilentLog:
        @property
        def nc(self) -> Any:
            return self

        async def subscribe(self, *_: Any, **__: Any) -> Any:
            return Subscription()

    async def frames() -> AsyncGenerator[bytes]:
        nonlocal frames_produced
        while True:
            frames_produced += 1
            yield LARGE

    async def may() -> bool:
        return True

    async def receive() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        if message.get("body") == LARGE:
            blocked.set()
            await anyio.sleep_forever()

    log: Any = SilentLog()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Live(log, frames, may, lambda: None, pieces), {"type": "http"}, receive, send)
        with anyio.fail_after(PATIENCE_S):
            await blocked.wait()
        await run_other_tasks()
        # Beyond the bound, one frame is being sent, one is in the queue and one waits for room.
        assert frames_produced * len(LARGE) <= live.BYTES_AHEAD + 3 * len(LARGE)
        tasks.cancel_scope.cancel()
