"""Batches: a reader gets every message once and in order, and one request serves many messages."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.nats import batches as module
from callboard.bus.nats.batches import Batches, StoredBytes, open_batches
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.ephemeral_consumer import SILENCE_S
from callboard.bus.nats.jetstream_api import api
from tests.bus.nats.test_feed import NEVER_S, opened, write
from tests.support.log_kinds import PATIENCE_S, RUN
from tests.support.patience import until


async def read(batches: Batches, count: int) -> list[StoredBytes]:
    """Read this many messages at least."""
    found: list[StoredBytes] = []
    with anyio.fail_after(PATIENCE_S):
        while len(found) < count:
            await batches.wait()
            found += await batches.read()
    return found


def sequences(found: list[StoredBytes]) -> list[int]:
    return [one.sequence for one in found]


async def test_messages_are_read_together_as_they_are_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_server, log):
        await write(log, 1, 40, 0)
        await log.publish(OutgoingMessage("cb.gone.acme.r1", b"{}", {}))
        async with open_batches(log, [log.subjects.run(RUN), "cb.gone.acme.*"], 2) as batches:
            found = await batches.read()
            assert sequences(found) == list(range(3, 42))
            stored = await log.read(RUN)
            assert [(one.id, one.data) for one in found[:-1]] == [(one.id, one.data) for one in stored[2:]]
            assert found[-1] == StoredBytes(41, "cb.gone.acme.r1", "", b"{}")
            assert await batches.read() == []
            assert batches.requested == 2

        async def is_removed() -> bool:
            return (await api(log.requests, f"CONSUMER.LIST.{log.stream}", {}))["total"] == 0

        await until(is_removed)


async def test_a_reader_continues_after_the_server_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_S", NEVER_S)
    async with opened(tmp_path) as (server, log), open_batches(log, [log.subjects.run(RUN)], 0) as batches:
        written = await write(log, 1, 3, 0)
        assert sequences(await read(batches, 3)) == [1, 2, 3]
        for first in (4, 6):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(batches.wait)
                server.kill()
                written = await write(log, first, first + 1, written)
            assert sequences(await read(batches, 2)) == [first, first + 1]


async def test_a_reader_continues_when_its_consumer_is_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_server, log), open_batches(log, [log.subjects.run(RUN)], 0) as batches:
        written = await write(log, 1, 2, 0)
        assert sequences(await read(batches, 2)) == [1, 2]
        for consumer in await log.nc.jetstream().consumers_info(log.stream):
            await log.nc.jetstream().delete_consumer(log.stream, consumer.name)
        await write(log, 3, 4, written)
        assert sequences(await read(batches, 2)) == [3, 4]


@pytest.mark.parametrize("lost", [2, 4], ids=["in-the-middle", "the-last-one"])
async def test_a_lost_message_is_delivered_again(lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_S", SILENCE_S / 10)
    monkeypatch.setattr(module, "BATCH_MAX", 4)
    seen = 0
    take = Batches._take  # pyright: ignore[reportPrivateUsage]

    def losing(self: Batches, inbox: str, subject: bytes, reply: bytes, *more: Any) -> None:
        nonlocal seen
        seen += bool(reply)
        if seen != lost or not reply:
            take(self, inbox, subject, reply, *more)

    monkeypatch.setattr(Batches, "_take", losing)
    async with opened(tmp_path) as (_server, log):
        await write(log, 1, 4, 0)
        async with open_batches(log, [log.subjects.run(RUN)], 0) as batches:
            found: list[StoredBytes] = []
            with anyio.fail_after(PATIENCE_S):
                while len(found) < 4:
                    found += await batches.read()
            assert sequences(found) == [1, 2, 3, 4]
    assert seen > 4


async def test_a_message_above_the_bound_is_a_batch_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES_MAX", 1_000)
    async with opened(tmp_path) as (_server, log):
        for size in (10, 5_000, 10, 10):
            await log.publish(OutgoingMessage("cb.start.acme", b"x" * size, {}))
        async with open_batches(log, ["cb.start.acme"], 0) as batches:
            sizes: list[list[int]] = []
            with anyio.fail_after(PATIENCE_S):
                while sum(map(len, sizes)) < 4:
                    sizes.append([len(one.data) for one in await batches.read()])
    assert [one for one in sizes if one] == [[10], [5_000], [10, 10]]


async def test_many_messages_are_read_from_one_consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_MAX", 10)
    created: list[str] = []
    make = Batches._make  # pyright: ignore[reportPrivateUsage]

    async def count(self: Batches) -> None:
        await make(self)
        created.append(self._name)  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(Batches, "_make", count)
    async with opened(tmp_path) as (_server, log):
        await write(log, 1, 95, 0)
        async with open_batches(log, [log.subjects.run(RUN)], 0) as batches:
            found: list[StoredBytes] = []
            with anyio.fail_after(PATIENCE_S):
                while some := await batches.read():
                    found += some
            assert sequences(found) == list(range(1, 96))
            assert batches.requested == 11
    assert len(created) == 1
