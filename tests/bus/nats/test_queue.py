"""Queues: how much is pulled at once, and how a consumer that delivers nothing is reported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from callboard.bus.nats import queue
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import open_log
from callboard.bus.nats.queue import Delivery, Outbox, Puller, ensure_consumer, ensure_consumers
from callboard.bus.subjects import Subjects
from tests.support.lane_server import AccountServer

PATIENCE_S = 30.0

HANDED_OVER = 100
"""How often a queue is handed over to another reader."""


async def test_large_messages_are_pulled_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "PULL_BYTES_MAX", 0)
    asked = 0
    pull = Puller._pull  # pyright: ignore[reportPrivateUsage]

    async def counted(self: Puller, subject: str, request: bytes, inbox: str) -> None:
        nonlocal asked
        asked += 1
        await pull(self, subject, request, inbox)

    monkeypatch.setattr(Puller, "_pull", counted)
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=1)
        stored = [await log.publish(OutgoingMessage("cb.start.acme", b"x" * 900_000, {})) for _ in range(11)]
        await ensure_consumer(log.requests, log.stream, "c", ["cb.start.*"], PATIENCE_S)
        found: list[int] = []
        complete = anyio.Event()

        def take(delivery: Delivery) -> None:
            found.append(delivery.sequence)
            if len(found) == len(stored):
                complete.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Puller(nc, log.stream, "c", take, Outbox(nc).send).run)
            with anyio.fail_after(PATIENCE_S):
                await complete.wait()
            tasks.cancel_scope.cancel()
    assert found == stored
    assert asked >= len(stored) // 2, "two of them are what fits into one request"


async def test_an_exhausted_pull_request_is_followed_by_the_next_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of the server for it is not an error, so no pause follows."""
    monkeypatch.setattr(queue, "PULL_MESSAGES", 2)
    monkeypatch.setattr(queue, "PULL_RETRY_S", 10 * PATIENCE_S)
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=1)
        await ensure_consumer(log.requests, log.stream, "c", ["cb.start.*"], PATIENCE_S)
        came = anyio.Event()

        def take(_delivery: Delivery) -> None:
            came.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Puller(nc, log.stream, "c", take, Outbox(nc).send).run)
            for _ in range(9):
                came = anyio.Event()
                await log.publish(OutgoingMessage("cb.start.acme", b"x", {}))
                with anyio.fail_after(PATIENCE_S):
                    await came.wait()
            tasks.cancel_scope.cancel()


async def test_pulls_are_limited_to_the_free_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "PULL_MESSAGES", 2)
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=1)
        stored = [await log.publish(OutgoingMessage("cb.start.acme", b"x", {})) for _ in range(5)]
        await ensure_consumer(log.requests, log.stream, "c", ["cb.start.*"], PATIENCE_S)
        found: list[int] = []
        seen: list[int] = []
        full, emptied, complete = anyio.Event(), anyio.Event(), anyio.Event()

        async def room() -> None:
            seen.append(len(found))
            if len(found) == 2:
                full.set()
                await emptied.wait()

        def take(delivery: Delivery) -> None:
            found.append(delivery.sequence)
            if len(found) == len(stored):
                complete.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Puller(nc, log.stream, "c", take, Outbox(nc).send).run, room)
            with anyio.fail_after(PATIENCE_S):
                await full.wait()
                await nc.flush()
                assert found == stored[:2]
                emptied.set()
                await complete.wait()
            tasks.cancel_scope.cancel()
    assert (found, seen[:3]) == (stored, [0, 2, 4])


async def test_a_reader_that_stops_leaves_no_undelivered_message(tmp_path: Path) -> None:
    """Messages that the server has already sent are read, as another reader would get them only after a timeout."""
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=1)
        await ensure_consumer(log.requests, log.stream, "c", ["cb.start.*"], 100 * PATIENCE_S)
        stored: set[int] = set()
        found: set[int] = set()
        complete = anyio.Event()

        def take(delivery: Delivery) -> None:
            found.add(delivery.sequence)
            if len(found) == HANDED_OVER:
                complete.set()

        for _ in range(HANDED_OVER):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Puller(nc, log.stream, "c", take, Outbox(nc).send).run)
                stored.add(await log.publish(OutgoingMessage("cb.start.acme", b"x", {})))
                tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Puller(nc, log.stream, "c", take, Outbox(nc).send).run)
            with anyio.move_on_after(PATIENCE_S):
                await complete.wait()
            tasks.cancel_scope.cancel()
    assert found == stored


async def test_a_deleted_consumer_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "PULL_RETRY_S", 0.01)
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=1)
        asked = 0

        async def count() -> None:
            nonlocal asked
            asked += 1
            if asked == 4:
                tasks.cancel_scope.cancel()

        with capture_logs() as logs:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Puller(nc, log.stream, "c", lambda _: None, Outbox(nc).send).run, count)
    assert [(entry["event"], entry["consumer"]) for entry in logs if entry["log_level"] == "warning"] == [
        ("nothing is delivered", "c")
    ]


async def test_consumers_that_exist_as_wanted_are_not_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server writes and syncs a file for each creation, even if nothing changes."""
    asked: list[str] = []
    api = queue.api

    async def record(requests: Any, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(verb.partition(".CB_CALLBOARD")[0])
        return await api(requests, verb, body)

    monkeypatch.setattr(queue, "api", record)
    async with AccountServer(tmp_path) as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=1)
        filters = {"a": ["cb.start.*"], "b": ["cb.cmd.0.>", "cb.due.0.>"]}
        assert await ensure_consumers(log.requests, log.stream, filters, PATIENCE_S) == {"a": 0, "b": 0}
        assert asked == ["CONSUMER.LIST", "CONSUMER.CREATE", "CONSUMER.CREATE"]
        came = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Puller(nc, log.stream, "a", lambda _: came.set(), Outbox(nc).send).run)
            await log.publish(OutgoingMessage("cb.start.acme", b"x", {}))
            with anyio.fail_after(PATIENCE_S):
                await came.wait()
            tasks.cancel_scope.cancel()
        asked.clear()
        assert await ensure_consumers(log.requests, log.stream, filters, PATIENCE_S) == {"a": 1, "b": 0}
        assert asked == ["CONSUMER.LIST"]
        # One of them is to have another time to acknowledge.
        assert await ensure_consumers(log.requests, log.stream, {"a": filters["a"]}, 2 * PATIENCE_S) == {"a": 1}
        assert asked == ["CONSUMER.LIST"] * 2 + ["CONSUMER.CREATE"]
        found = {one["name"]: one["config"]["ack_wait"] for one in await queue.list_consumers(log.requests, log.stream)}
        assert found == {"a": 2 * PATIENCE_S * 1e9, "b": PATIENCE_S * 1e9}
