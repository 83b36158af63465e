"""A full store: nothing is lost, senders are notified at once, and runs continue when there is room.

A quota of the embedded server replaces the full disk. A log in memory has its own limit.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from callboard.bus import events as ev
from callboard.bus.errors import RunLost, StoreFull
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import EventLog, Full, append, store_blob
from callboard.bus.nats.capacity import FRESH_S, TOLD_PAUSE_S, StreamSpace
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.credentials import ServerCredentials
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.requests import REQUEST_TIMEOUT_S, Requests, Silent
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.nats.server.program import StoreUsage
from callboard.bus.subjects import RunRef, Subjects
from callboard.languages.language import End
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.runtime.worker import store_watch
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import simulate
from tests.bus.log.test_memory import entry
from tests.bus.nats.test_connection import nats_server
from tests.support.full_store import PATIENCE_S, fill, make_room
from tests.support.full_store import small_store as small_store  # fixture
from tests.support.simulation import World, finish, harness_for

pytestmark = pytest.mark.usefixtures("own_servers")
REF = RunRef("acme", "r1")
OTHER = RunRef("acme", "r2")


# -- the log ----------------------------------------------------------------------------------------------------------


@dataclass
class Store:
    """A log that can be filled and emptied."""

    log: EventLog
    fill: Callable[[], Awaitable[None]]
    make_room: Callable[[], Awaitable[None]]


def in_memory() -> Store:
    log = MemoryLog()

    async def full() -> None:
        log.bytes_max = 0

    async def room() -> None:
        log.bytes_max = None

    return Store(log, full, room)


@pytest.fixture(params=["memory", "jetstream", "group-commit"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield in_memory()
        return
    async with EmbeddedServer(tmp_path, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=4, group_commit=request.param == "group-commit")
        yield Store(log, lambda: fill(log), lambda: make_room(log))


async def test_an_append_waits_for_room_and_is_stored_once(store: Store) -> None:
    first = await append(store.log, REF, [entry(1)], 0)
    await store.fill()
    with pytest.raises(Full):
        await store.log.put(REF, [entry(2)], first)
    async with anyio.create_task_group() as tasks:

        async def both() -> None:
            await append(store.log, REF, [entry(2), entry(3)], first, patience_s=0.0)

        tasks.start_soon(both)
        with pytest.raises(StoreFull, match=r"^store\.full: event 1 of r2 is not stored"):
            await append(store.log, OTHER, [entry(1)], 0, room_patience_s=0.0)
        await store.make_room()
    assert [item.event.n for item in await store.log.read(REF)] == [1, 2, 3]
    assert await store.log.last(OTHER) is None


async def test_a_writer_that_lost_the_run_fails_when_there_is_room(store: Store) -> None:
    await store.fill()
    lost = False
    async with anyio.create_task_group() as tasks:

        async def loses() -> None:
            nonlocal lost
            with pytest.raises(RunLost):
                await append(store.log, REF, [entry(1)], 7)
            lost = True

        tasks.start_soon(loses)
        await anyio.sleep(0.2)
        await store.make_room()
        await append(store.log, REF, [entry(1, "rival")], 0)
    assert lost
    assert [item.id for item in await store.log.read(REF)] == ["rival.1.1"]


async def test_a_large_value_waits_for_room_and_is_stored_once(store: Store) -> None:
    data = bytes(range(256)) * 6_000
    await store.fill()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store_blob, store.log, REF, 1, "d1", data)
        with pytest.raises(StoreFull):
            await store_blob(store.log, REF, 1, "d2", data, room_patience_s=0.0)
        await store.make_room()
    assert await store.log.get_blob(REF, "d1") == data


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[JetStreamLog]:
    async with EmbeddedServer(tmp_path, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        yield await open_log(nc, Subjects(), partitions=4)


async def test_a_value_that_did_not_fit_does_not_use_up_the_remaining_room(log: JetStreamLog) -> None:
    data = b"x" * 1_600_000
    await fill(log, leaving=800_000)
    for _ in range(3):
        with pytest.raises(Full):
            await log.put_blob(REF, "d", data)
    pieces = await log.nc.jetstream().stream_info(log.stream, subjects_filter="cb.blob.>")
    assert set((pieces.state.subjects or {}).values()) == {1}, "each piece is there once"
    await make_room(log)
    await log.put_blob(REF, "d", data)
    assert await log.get_blob(REF, "d") == data


async def test_foreign_chunks_are_not_read_as_a_value(log: JetStreamLog) -> None:
    subject = log.subjects.blob(REF, "d")
    await log.put_blob(REF, "d", b"true")
    for piece, count in (("0", "1"), ("1", "2"), ("x", "1"), ("9" * 30, "9" * 5_000), ("7", "many")):
        await log.publish(OutgoingMessage(f"{subject}.{piece}", b"forged", {"Cb-Chunks": count}))
    assert await log.get_blob(REF, "d") == b"true"


async def test_an_exhausted_account_quota_counts_as_a_full_store(tmp_path: Path) -> None:
    users = '{jetstream: {max_file: 300000, max_mem: 1M}, users: [{user: "u", password: "p"}]}'
    async with (
        nats_server(tmp_path, f"accounts {{A: {users}}}") as url,
        open_nats_connection(url, name="test", credentials=ServerCredentials(user="u", password="p")) as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=1)
        for _ in range(2):
            await log.publish(OutgoingMessage("cb.start.acme", b"x" * 100_000, {}))
        with pytest.raises(Full, match="resource limits exceeded for account"):
            await log.publish(OutgoingMessage("cb.start.acme", b"x" * 100_000, {}))


# -- before it is full ------------------------------------------------------------------------------------------------


async def test_the_worker_warns_at_two_levels_and_again_after_there_was_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_watch, "LOOK_S", 0.05)
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as connection, anyio.create_task_group() as tasks:
        watch = store_watch.StoreWatch(connection)
        with capture_logs() as logs:

            async def told(*expected: str) -> None:
                said: list[str] = []
                with anyio.fail_after(PATIENCE_S):
                    while True:
                        said = [line["event"] for line in logs if "purge runs" in line.get("remedy", "")]
                        if len(said) >= len(expected):
                            break
                        await anyio.sleep(0.02)
                assert said == list(expected)

            tasks.start_soon(watch.run)
            fills, nearly = (words for _, words in store_watch.LEVELS)
            await fill(connection.log, leaving=900_000)
            await told(fills)
            await fill(connection.log, leaving=300_000)
            await told(fills, nearly)
            await make_room(connection.log)
            with anyio.fail_after(PATIENCE_S):
                while True:
                    if watch.share is not None and watch.share < 0.5:
                        break
                    await anyio.sleep(0.02)
            # In the same two steps: who looks while it is being filled sees it fill up, and says so.
            await fill(connection.log, leaving=900_000)
            await told(fills, nearly, fills)
            await fill(connection.log, leaving=300_000)
            await told(fills, nearly, fills, nearly)
        tasks.cancel_scope.cancel()


async def test_a_missing_usage_report_is_not_taken_for_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "LOOK_S", 0.0)
    said = [StoreUsage(80, 100), None, StoreUsage(80, 100), None, StoreUsage(80, 100)]
    shares: list[float | None] = []

    class Server:
        async def usage(self) -> StoreUsage | None:
            shares.append(watch.share)
            if not said:
                tasks.cancel_scope.cancel()
            return said.pop(0) if said else None

    async def nothing(*_: Any) -> dict[str, Any]:
        return {}

    async def no_loss(*_: Any) -> int:
        return 0

    monkeypatch.setattr(store_watch, "api", nothing)
    monkeypatch.setattr(store_watch, "lost_bytes", no_loss)
    clock = SimpleNamespace(measure=nothing, ahead_s=0.0)
    log = SimpleNamespace(room=StreamSpace(), requests=None, stream="s", clock=clock)
    connection: Any = SimpleNamespace(server=Server(), log=log)
    watch = store_watch.StoreWatch(connection)
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
    assert [line["event"] for line in logs] == [store_watch.LEVELS[0][1]]
    assert shares == [None, 0.8, 0.8, 0.8, 0.8, 0.8]


# -- a server that falls silent ---------------------------------------------------------------------------------------


async def test_a_server_that_answers_and_stores_nothing_is_reported_as_failing(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Requests.request

    async def request(self: Requests, subject: str, data: bytes, headers: dict[str, str] | None = None) -> bytes:
        if subject.startswith("cb."):
            raise Silent(subject)
        return await asked(self, subject, data, headers)

    await append(log, OTHER, [entry(1)], 0)
    monkeypatch.setattr(Requests, "request", request)
    with pytest.raises(Silent):
        # It has stored something just now: this may only be slow, or an answer that got lost.
        await log.put(REF, [entry(1)], 0)
    await anyio.sleep(REQUEST_TIMEOUT_S)
    for _ in range(2):
        with pytest.raises(Full) as full:
            await log.put(REF, [entry(1)], 0)
        assert full.value.failing
    assert log.room.full is not None
    with pytest.raises(StoreFull) as told:
        await Client(log, "acme").start({})
    assert told.value.code == "store.failing"
    assert "may be stored or not" in told.value.message
    monkeypatch.undo()
    await append(log, REF, [entry(1)], 0)
    assert log.room.full is None


async def test_a_missing_publish_permission_is_not_reported_as_a_failing_store(tmp_path: Path) -> None:
    users = 'users: [{user: "u", password: "p", permissions: {publish: {deny: "cb.start.acme"}}}]'
    async with (
        nats_server(tmp_path, f"authorization {{{users}}}") as url,
        open_nats_connection(url, name="test", credentials=ServerCredentials(user="u", password="p")) as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=1)
        with pytest.raises(Silent):
            await log.publish(OutgoingMessage("cb.start.acme", b"{}", {}))


def test_listeners_are_notified_once_of_a_full_store_and_once_of_room() -> None:
    heard: list[str | None] = []

    async def near_the_end_of_a_quota() -> None:
        room = StreamSpace()
        room.listen(lambda full: heard.append(full.reason if full else None))
        for _ in range(3):
            # Large messages are refused, small ones are not.
            room.note_refusal(Full("no room"))
            room.note_refusal(Full("no room"))
            assert room.shut() is not None
            room.took()
            assert room.shut() is None
        await anyio.sleep(TOLD_PAUSE_S)
        room.note_refusal(Full("still no room"))
        await anyio.sleep(FRESH_S)
        assert (room.full is None, room.shut()) == (False, None), "after a while it is worth a try"

    simulate(near_the_end_of_a_quota)
    assert heard == ["no room", None, "still no room"]


def test_an_append_to_a_full_store_fails_after_its_time_limit() -> None:
    async def wait() -> None:
        log = MemoryLog()
        log.bytes_max = 0
        begun = anyio.current_time()
        with pytest.raises(StoreFull, match="event 1 of r1 is not stored; the store is full"):
            await append(log, REF, [entry(1)], 0, patience_s=1.0, room_patience_s=100.0)
        assert 90.0 < anyio.current_time() - begun <= 100.0

    simulate(wait)


def test_a_run_with_a_repeatedly_full_log_continues_and_repeats_nothing() -> None:
    async def play(stage: Any) -> End:
        node = stage.enter("work")
        done = [(await node.call(f"do.{i}", "code", {"i": i})).value for i in range(5)]
        node.exit("ok")
        return End("completed", done)

    async def body() -> None:
        log = MemoryLog()
        log.bytes_max = 0
        harness = harness_for(play, log)
        async with anyio.create_task_group() as tasks:

            async def janitor() -> None:
                while True:
                    # A little is removed every hour.
                    await anyio.sleep(3_600)
                    log.bytes_max = (log.bytes_max or 0) + 700

            tasks.start_soon(janitor)
            ref = await harness.accept("p")
            events = await finish(harness, ref, World())
            check_log(events)
            check_replay(harness.language, ref, events)
            assert len(harness.executed) == len(set(harness.executed)) == 5
            assert [event.type for event in events].count(ev.RunClaimed.type) == 1, "the run was never given back"
            tasks.cancel_scope.cancel()

    simulate(body)
