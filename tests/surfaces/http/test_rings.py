"""Rings: readers of the same filters share a consumer, and each receives every event once."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import anyio
import pytest

from callboard.bus.events import NodeProgress, encode_event
from callboard.bus.log.port import Entry, NoAnswer, append
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.surfaces.http import rings as module
from callboard.surfaces.http.rings import Rings
from tests.support.event_logs import Log

REF = RunRef("acme", "r")
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
async def log(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JetStreamLog]:
    home = tmp_path_factory.mktemp("rings")
    async with open_connection(load({"data_dir": home, "sync": "100ms"}, env={}, cwd=home), "test") as connection:
        yield connection.log


class Writer:
    """Writes events of one run."""

    def __init__(self, log: JetStreamLog, run: str) -> None:
        self._log = log
        self.ref = RunRef("acme", run)
        self.filters = [log.subjects.events("acme", run)]
        self._made = Log(run)
        self.sequences: list[int] = []

    async def write(self, count: int, text: str = "") -> None:
        for _ in range(count):
            event = self._made.add(NodeProgress("a", text), "a")
            entry = Entry(event.n, 1, event.type, "cake", f"w.{event.n}", encode_event(event))
            after = self.sequences[-1] if self.sequences else 0
            self.sequences.append(await append(self._log, self.ref, [entry], after))


async def read_sequences(
    rings: Rings, filters: Sequence[str], after: int | None, count: int, pause: Any = None
) -> list[int]:
    """Follow until ``count`` events have come; return their sequences."""
    found: list[int] = []
    async with aclosing(rings.follow(filters, after)) as output:
        begun = await anext(output)
        assert begun.frame == b"id: %d\n\n" % begun.sequence
        assert after is None or begun.sequence == after
        async for one in output:
            assert one.frame.startswith(f"id: {one.sequence}\nevent: node.progress\ndata: ".encode())
            assert json.loads(one.frame.partition(b"data: ")[2])["type"] == "node.progress"
            found.append(one.sequence)
            if pause is not None:
                await pause(len(found))
            if len(found) == count:
                break
    return found


async def count_consumers(log: JetStreamLog, filters: Sequence[str]) -> int:
    """The number of consumers with these filters."""
    found = (await api(log.requests, f"CONSUMER.LIST.{log.stream}", {}))["consumers"] or []
    return sum(one["config"].get("filter_subjects", [one["config"].get("filter_subject")]) == filters for one in found)


async def test_readers_of_the_same_filters_share_a_consumer(log: JetStreamLog) -> None:
    rings, writer = Rings(log), Writer(log, "shared")
    found: list[list[int]] = []

    async def follow() -> None:
        found.append(await read_sequences(rings, writer.filters, None, 5))

    async with rings.open():
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(7):
                    tasks.start_soon(follow)
                while not await count_consumers(log, writer.filters):  # noqa: ASYNC110 - the server sends no notice
                    await anyio.sleep(0.01)
                await writer.write(4)
                assert await count_consumers(log, writer.filters) == 1
                await writer.write(1)
            assert found == [writer.sequences] * 7
            while await count_consumers(log, writer.filters):  # noqa: ASYNC110 - likewise
                await anyio.sleep(0.01)


@pytest.mark.parametrize("turning", [True, False])
async def test_a_reader_begins_at_any_sequence(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch, turning: bool
) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 4)
    rings, writer = Rings(log), Writer(log, f"anywhere-{turning}")
    await writer.write(9)

    async def look() -> None:
        for place in (-1, 0, 3, 8):
            after = 0 if place < 0 else writer.sequences[place]
            expected = writer.sequences[place + 1 :]
            if expected:
                assert await read_sequences(rings, writer.filters, after, len(expected)) == expected

    with anyio.fail_after(PATIENCE_S):
        if not turning:
            await look()
            return
        async with rings.open(), aclosing(rings.follow(writer.filters, None)) as kept:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, kept)
                await look()
                await writer.write(9)
            await look()


async def test_a_reader_that_is_slower_than_the_ring_misses_nothing(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 2_000)
    rings, writer = Rings(log), Writer(log, "behind")
    await writer.write(1)

    async def slow(count: int) -> None:
        if count in (1, 20):
            await writer.write(20, "x" * 100)

    async with rings.open():
        with anyio.fail_after(PATIENCE_S):
            assert await read_sequences(rings, writer.filters, 0, 41, slow) == writer.sequences


async def test_a_broken_ring_is_replaced(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    rings, writer = Rings(log), Writer(log, "broken")
    await writer.write(1)
    output, breaks, feeds = module._read_frames, anyio.Event(), list[Any]()  # pyright: ignore[reportPrivateUsage]

    async def breaking(feed: AsyncIterator[Any]) -> AsyncIterator[Any]:
        feeds.append(feed)
        if len(feeds) == 1:
            await breaks.wait()
            raise NoAnswer("broken")
        async for one in output(feed):
            yield one

    monkeypatch.setattr(module, "_read_frames", breaking)
    with anyio.fail_after(PATIENCE_S):
        # A reader that still reads the log does not keep others from following.
        async with rings.open(), aclosing(rings.follow(writer.filters, 0)) as behind:
            assert [(await anext(behind)).sequence for _ in range(2)] == [0, *writer.sequences]
            breaks.set()
            with suppress(NoAnswer):
                await read_sequences(rings, writer.filters, None, 1)
            assert await read_sequences(rings, writer.filters, 0, 1) == writer.sequences


@pytest.mark.parametrize("turning", [True, False])
async def test_a_malformed_event_is_skipped(log: JetStreamLog, turning: bool) -> None:
    rings, writer = Rings(log), Writer(log, f"strange-{turning}")
    await writer.write(2)
    subject = log.subjects.event(writer.ref, "cake", "node.progress")
    await log.nc.jetstream().publish(subject, b'{"run": "strange')
    writer.sequences.append((await log.nc.jetstream().publish(subject, b"\n\n")).seq)
    await writer.write(2)
    written = [*writer.sequences[:2], *writer.sequences[3:]]
    with anyio.fail_after(PATIENCE_S):
        if turning:
            async with rings.open():
                assert await read_sequences(rings, writer.filters, 0, 4) == written
                assert await read_sequences(rings, writer.filters, written[1], 2) == written[2:]
        else:
            assert await read_sequences(rings, writer.filters, 0, 4) == written
