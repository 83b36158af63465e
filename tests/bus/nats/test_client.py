"""The client encodes usual messages without the library, and sends the same bytes as the library."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import BadSubjectError, ConnectionClosedError, MaxPayloadError
from nats.js.api import Header

from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import open_nats_connection
from tests.support.lane_server import AccountServer


@asynccontextmanager
async def line(tmp_path: Path) -> AsyncGenerator[ReconnectingClient]:
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        yield nc


Publish = Callable[[ReconnectingClient, str, bytes, str, dict[str, str] | None], Awaitable[None]]

CASES: list[tuple[bytes, str, dict[str, str] | None]] = [
    (b"", "", None),
    (b"body", "", {}),
    (b"\x00\r\nPUB b 0\r\n", "back.to.me", None),
    (b"", "", {"A": "1"}),
    (b"body", "back.to.me", {"Nats-Expected": "7", "Name": "Müller: 5 €", "Empty": ""}),
    (b"body", "", {Header.EXPECTED_LAST_SUBJECT_SEQUENCE: "0"}),
    (b"body", "", {"Folded": "one\r\nEvil: two"}),
    (b"body", "", {"Folded": "one\rtwo", "Twice": "one\ntwo"}),
]


async def test_the_client_sends_the_same_bytes_as_the_library(tmp_path: Path) -> None:
    ways: list[Publish] = [ReconnectingClient.publish, Client.publish]
    async with line(tmp_path) as nc:
        subscription = await nc.subscribe("a.>")
        before = nc.stats["out_msgs"], nc.stats["out_bytes"]
        for body, reply, headers in CASES:
            said: list[Msg] = []
            for publish in ways:
                await publish(nc, "a.b", body, reply, headers)
                said.append(await subscription.next_msg(timeout=10))
            ours, theirs = said
            assert (ours.subject, ours.reply, ours.data) == ("a.b", reply, body)
            assert (ours.subject, ours.reply, ours.data) == (theirs.subject, theirs.reply, theirs.data)
            assert ours.headers == theirs.headers
        size = len(ways) * sum(len(body) for body, _reply, _headers in CASES)
        assert (nc.stats["out_msgs"], nc.stats["out_bytes"]) == (before[0] + len(ways) * len(CASES), before[1] + size)


async def test_messages_that_are_written_at_once_equal_those_of_the_library(tmp_path: Path) -> None:
    async with line(tmp_path) as nc:
        subscription = await nc.subscribe("a.>")
        for body, reply, headers in CASES:
            message = OutgoingMessage("a.b", body, headers or {})
            if not nc.write([message], reply):
                assert "Folded" in (headers or {})
                continue
            said = await subscription.next_msg(timeout=10)
            await Client.publish(nc, "a.b", body, reply, headers)
            theirs = await subscription.next_msg(timeout=10)
            assert (said.reply, said.data, said.headers or {}) == (theirs.reply, theirs.data, theirs.headers or {})


async def test_messages_of_synchronous_code_are_written_in_order_with_those_that_follow(tmp_path: Path) -> None:
    async with line(tmp_path) as nc:
        subscription = await nc.subscribe("a.>")
        assert nc.enqueue("a.1", b"late", within_s=30)
        assert nc.enqueue("a.2", b"late", {"A": "1"}, within_s=30)
        assert nc.write([OutgoingMessage("a.3", b"at once", {})], "")
        assert nc.enqueue("a.4", b"alone")
        assert not nc.enqueue("a b", b"")
        assert not nc.enqueue("a.5", b"", {"Folded": "one\r\nEvil: two"})
        found = [await subscription.next_msg(timeout=10) for _ in range(4)]
        assert [one.subject for one in found] == ["a.1", "a.2", "a.3", "a.4"]
        assert found[1].headers == {"A": "1"}


WIRE = b"MSG in.1 1 5\r\nfirst\r\nMSG in.2 2 6\r\nsecond\r\nPING\r\nMSG in.3 1 back 5\r\nthird\r\nMSG in.4 1 0\r\n\r\n"


class PiecewiseClient(ReconnectingClient):
    """A client that gets pieces of `WIRE` by hand, and notes what it takes in."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[bytes, bytes]] = []
        self.reader = asyncio.StreamReader()
        self._takers[1] = lambda subject, data: self.taken.append((subject, data))
        self._read_directly(self.reader)

    async def feed(self, data: bytes, *, parse: bool) -> None:
        self.reader.feed_data(data)
        if parse and self.reader._buffer:  # pyright: ignore
            await self._ps.parse(await self.reader.read(len(WIRE)))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.taken.append((subject, data))

    async def _process_ping(self) -> None:
        self.taken.append((b"ping", b""))


@given(st.lists(st.tuples(st.integers(0, len(WIRE)), st.booleans()), max_size=6))
async def test_direct_messages_keep_their_order_in_pieces_of_any_size(cuts: list[tuple[int, bool]]) -> None:
    client = PiecewiseClient()
    parses = {0: True, **dict(cuts), len(WIRE): True}
    for start, end in pairwise(sorted(parses)):
        await client.feed(WIRE[start:end], parse=parses[end])
    messages = [(b"in.1", b"first"), (b"in.2", b"second"), (b"ping", b""), (b"in.3", b"third"), (b"in.4", b"")]
    assert client.taken == messages


async def test_invalid_messages_are_refused_as_by_the_library(tmp_path: Path) -> None:
    async with line(tmp_path) as nc:
        for subject in ("", "a b", "a\r\nPUB b 0\r\n"):
            with pytest.raises(BadSubjectError):
                await nc.publish(subject, b"")
        with pytest.raises(MaxPayloadError):
            await nc.publish("a", bytes(nc.max_payload + 1))
        await nc.flush()
    with pytest.raises(ConnectionClosedError):
        await nc.publish("a", b"")


NAMES = st.text("Nats-Msg Id\t:é", max_size=8)
VALUES = st.text("one: two\tß \r\n", max_size=12)
BLOCKS = st.lists(st.tuples(NAMES, st.sampled_from([":", ": ", " ", ":\t"]), VALUES), max_size=4)


@given(st.sampled_from([None, "", " 404", " 100 Idle Heartbeat", " 503\r\nA: b"]), BLOCKS)
async def test_headers_are_parsed_as_by_the_library(status: str | None, block: list[tuple[str, str, str]]) -> None:
    lines = [f"NATS/1.0{status}", *("".join(parts) for parts in block), "", ""]
    headers = "\r\n".join(lines).encode() if status is not None else None
    read = [await nc._process_headers(headers) for nc in (ReconnectingClient(), Client())]  # pyright: ignore[reportPrivateUsage]
    assert read[0] == read[1]
