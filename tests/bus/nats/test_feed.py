"""Feeds: a follower gets every event once and in order, even if its consumer is deleted."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from nats.aio.msg import Msg

from callboard.bus.log.port import append
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats import feed as module
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import Subjects
from tests.support.log_kinds import PATIENCE_S, RUN, entry

NEVER_S = 3_600.0


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[tuple[EmbeddedServer, JetStreamLog]]:
    async with EmbeddedServer(home, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        yield server, await open_log(nc, Subjects(), partitions=1)


async def write(log: JetStreamLog, first: int, last: int, after: int) -> int:
    """Append the events of these numbers; return the sequence of the last."""
    for n in range(first, last + 1):
        after = await append(log, RUN, [entry(n)], after)
    return after


async def numbers(feed: AsyncIterator[Recorded], last: int) -> list[int]:
    """Read up to the event of a number."""
    found: list[int] = []
    with anyio.fail_after(PATIENCE_S):
        async for recorded in feed:
            found.append(recorded.event.n)
            if recorded.event.n == last:
                break
    return found


@pytest.mark.parametrize("after", [0, None])
async def test_a_feed_continues_as_soon_as_the_connection_is_restored(
    after: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to notice a silence, and what was written before it listened again is not missing."""
    monkeypatch.setattr(module, "SILENCE_S", NEVER_S)
    async with opened(tmp_path) as (server, log), log.follow(log.subjects.run(RUN), after) as feed:
        server.kill()
        written = await write(log, 1, 3, 0)
        assert await numbers(feed, 3) == [1, 2, 3]
        server.kill()
        await write(log, 4, 5, written)
        assert await numbers(feed, 5) == [4, 5]


async def test_a_feed_continues_when_its_consumer_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(module, "SILENCE_S", 0.3)
    async with opened(tmp_path) as (_server, log), log.follow(log.subjects.run(RUN), 0) as feed:
        written = await write(log, 1, 1, 0)
        assert await numbers(feed, 1) == [1]
        stream = log.nc.jetstream()
        for consumer in await stream.consumers_info(log.stream):
            await stream.delete_consumer(log.stream, consumer.name)
        await write(log, 2, 4, written)
        assert await numbers(feed, 4) == [2, 3, 4]


@pytest.mark.parametrize("lost", [2, 4], ids=["in-the-middle", "the-last-one"])
async def test_a_lost_event_is_delivered_again(lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap is detected at the next event or the next heartbeat."""
    monkeypatch.setattr(module, "SILENCE_S", NEVER_S)
    seen = 0
    take = module._Consumer.take  # pyright: ignore[reportPrivateUsage]

    async def losing(self: module._Consumer, message: Msg) -> None:  # pyright: ignore[reportPrivateUsage]
        nonlocal seen
        seen += "Status" not in (message.headers or {})
        if seen != lost or "Status" in (message.headers or {}):
            await take(self, message)

    monkeypatch.setattr(module._Consumer, "take", losing)  # pyright: ignore[reportPrivateUsage]
    async with opened(tmp_path) as (_server, log):
        await write(log, 1, 4, 0)
        async with log.follow(log.subjects.run(RUN), 0) as feed:
            assert await numbers(feed, 4) == [1, 2, 3, 4]
    assert seen > 4


async def test_a_slow_reader_misses_nothing_and_is_sent_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEED_EVENTS_MAX", 5)
    async with opened(tmp_path) as (server, log):
        written = await write(log, 1, 40, 0)
        async with log.follow(log.subjects.run(RUN), 0) as feed:
            assert await numbers(feed, 20) == list(range(1, 21))
            # The connection breaks while many received events are unread.
            server.kill()
            await write(log, 41, 50, written)
            assert await numbers(feed, 50) == list(range(21, 51))
