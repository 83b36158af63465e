"""Whether a log has anything new: said as it is at the moment, without looking twice through what is old."""

from collections.abc import AsyncIterator

import pytest

from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.newest import NewMessages
from callboard.bus.subjects import RunRef, Subjects
from tests.support.lane_server import AccountServer
from tests.support.log_kinds import entry

RUN = RunRef("acme", "r1")
ENDS = Subjects().events("acme", event_type="run.>")
ASKS = Subjects().events("acme", event_type="human.>")


class Noted:
    """A log that notes from where on it is looked through."""

    def __init__(self, log: JetStreamLog) -> None:
        self.log = log
        self.last_sequence = log.last_sequence
        self.starts: list[int] = []

    async def next_sequence(self, filter: str, start: int) -> int | None:
        self.starts.append(start)
        return await self.log.next_sequence(filter, start)

    async def add(self, *types: str) -> int:
        """Append events; return the sequence of the last."""
        for type in types:
            last = await self.log.last(RUN)
            n, after = (last.event.n + 1, last.sequence) if last is not None else (1, 0)
            await self.log.put(RUN, [entry(n, type=type)], after)
        return await self.log.last_sequence()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AccountServer]:
    async with AccountServer(tmp_path_factory.mktemp("server")) as one:
        yield one


async def test_scanned_messages_are_not_scanned_again(server: AccountServer) -> None:
    async with open_nats_connection(server.url, name="test") as nc:
        noted = Noted(await open_log(nc, Subjects(), partitions=1))
        news = NewMessages(noted, [ENDS, ASKS])  # type: ignore[arg-type]
        assert not await news.behind(0, await noted.last_sequence())
        nodes = await noted.add("node.enter", "node.exit")
        assert not await news.behind(0, await noted.last_sequence())
        last = await noted.add("node.enter", "run.claimed", "node.enter")
        assert await news.behind(0, await noted.last_sequence())
        claimed = last - 1
        assert not await news.behind(claimed, last)
        assert not await news.behind(claimed, last)
        assert noted.starts == [1, 1, nodes + 1, nodes + 1, claimed + 1, claimed + 1]
