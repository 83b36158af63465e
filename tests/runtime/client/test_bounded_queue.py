"""What waits for readers: bounded in number and bytes, whoever is slow, and in the order in which it came."""

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


async def settled() -> None:
    """Let everybody come as far as they can."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def test_a_slow_reader_is_waited_for_and_misses_nothing() -> None:
    ahead, taken = BoundedQueue[bytes](100, 10, len), list[bytes]()

    async def write() -> None:
        for n in range(20):
            await ahead.put(b"%04d" % n)
        ahead.end()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async for item in ahead:
                taken.append(item)
                await settled()
                assert ahead.bytes <= 12
    assert taken == [b"%04d" % n for n in range(20)]
    assert not ahead.put_nowait(b"late")


async def test_of_several_who_wait_for_room_nobody_is_forgotten() -> None:
    ahead, taken = BoundedQueue[bytes](1, 10, len), set[bytes]()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(ahead.put, b"%d" % n)
            while len(taken) < 5:
                await settled()
                taken.add(await anext(ahead))


async def test_what_finds_no_room_is_left_out_be_it_by_number_or_by_bytes() -> None:
    few, small = BoundedQueue[bytes](2, 1_000, len), BoundedQueue[bytes](100, 10, len)
    assert [few.put_nowait(b"x") for _ in range(3)] == [True, True, False]
    assert [small.put_nowait(LARGE) for _ in range(2)] == [True, False]
    assert await anext(small) == LARGE
    assert small.put_nowait(b"x")


@pytest.mark.parametrize("pieces", [{}, {"r": "cb.live.acme.r.*.model.delta"}])
async def test_for_a_reader_who_takes_nothing_little_is_kept(pieces: dict[str, str]) -> None:
    made, blocked = 0, anyio.Event()

    class NoSubscription:
        async def unsubscribe(self) -> None: ...

    class Silent:
        @property
        def nc(self) -> Any:
            return self

        async def subscribe(self, *_: Any, **__: Any) -> Any:
            return NoSubscription()

    async def frames() -> AsyncGenerator[bytes]:
        nonlocal made
        while True:
            made += 1
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

    log: Any = Silent()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Live(log, frames, may, lambda: None, pieces), {"type": "http"}, receive, send)
        with anyio.fail_after(PATIENCE_S):
            await blocked.wait()
        await settled()
        # One is being written, one waits, and one is at hand.
        assert made * len(LARGE) <= live.BYTES_AHEAD + 3 * len(LARGE)
        tasks.cancel_scope.cancel()
