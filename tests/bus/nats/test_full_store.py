"""A full store: nothing is lost, senders are notified at once, and runs continue when there is room.

A quota of the embedded server replaces the full disk. A log in memory has its own limit.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
import structlog
from click.testing import CliRunner
from nats.aio.msg import Msg
from nats.js.errors import APIError
from structlog.testing import capture_logs

from callboard.bus import events as ev
from callboard.bus.commands import REPLY_HEADER
from callboard.bus.errors import RunLost, StoreFull
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import EventLog, Full, append, store_blob
from callboard.bus.nats.capacity import FRESH_S, TOLD_PAUSE_S, StreamSpace
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.cooling import cool_runs
from callboard.bus.nats.credentials import ServerCredentials
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.requests import REQUEST_TIMEOUT_S, Requests, Silent
from callboard.bus.nats.server.data_directory import ServerStore
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.nats.server.program import StoreUsage
from callboard.bus.subjects import RunRef, Subjects
from callboard.languages.language import End
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import Client, UnknownRun
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.runtime.worker import store_watch
from callboard.service.operations.removal import purge_run
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.main import cli
from callboard.surfaces.nats.micro_service import open_service
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import simulate
from tests.bus.log.test_memory import entry
from tests.bus.nats.test_connection import nats_server
from tests.support.simulation import World, finish, harness_for
from tests.support.workflows import document

pytestmark = pytest.mark.usefixtures("own_servers")

PATIENCE_S = 30.0
STORE_BYTES_MAX = 4_000_000
REF = RunRef("acme", "r1")
OTHER = RunRef("acme", "r2")
SOURCE = json.dumps(document({"a": {}}, []))
STARTS = 200


@pytest.fixture(autouse=True)
def small_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerStore, "bytes_max", lambda *_: STORE_BYTES_MAX)


async def fill(log: JetStreamLog, leaving: int = 0) -> None:
    """Fill the store with ballast and leave a number of bytes free."""
    stream = log.nc.jetstream()
    await stream.add_stream(name="BALLAST", subjects=["ballast"])
    while (room := STORE_BYTES_MAX - leaving - (await stream.account_info()).storage) > 1_000:
        await stream.publish("ballast", b"x" * min(room - 500, 500_000))
    with suppress(APIError):
        while not leaving:
            # The last one goes beyond: only then the server refuses.
            await stream.publish("ballast", b"x" * 500)


async def make_room(log: JetStreamLog) -> None:
    await log.nc.jetstream().delete_stream("BALLAST")


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


# -- the deployment ----------------------------------------------------------------------------------------------------


def start(run: str, **fields: Any) -> dict[str, Any]:
    script = {"default": {"text": "done"}}
    return {"definition": {"source": SOURCE}, "model": "scripted", "script": script, "run_id": run, **fields}


def by_nats(run: str) -> dict[str, Any]:
    """A run that calls a tool which the test answers."""
    tool = {"name": "ask", "description": "ask", "input_schema": {"type": "object"}, "nats": "test.ask"}
    skill = {"id": "s", "name": "s", "description": "s", "category": "general", "tools": [tool]}
    source = json.dumps(document({"a": {"skills": ["s"]}}, []))
    turns = [{"tool_calls": [{"tool": "ask", "input": {}}]}, {"text": "done"}]
    return start(run, definition={"source": source}, script={"turns": {"a": turns}}, options={"skills": [skill]})


@dataclass
class Hall:
    """A deployment with a worker, and what its log says of the store."""

    connection: Connection
    said: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    asked: list[Msg] = field(default_factory=list[Msg])
    news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def client(self) -> Client:
        return self.connection.client

    async def take(self, message: Msg) -> None:
        self.asked.append(message)
        self.news.set()

    def hear(self, _logger: Any, _method: str, entry: Any) -> Any:
        if "store" in entry["event"]:
            self.said.append(entry)
        raise structlog.DropEvent

    async def status(self, run: str) -> str:
        """Wait for a run's end and return its status."""
        with anyio.fail_after(PATIENCE_S):
            async with self.client.follow(run, event_type=ev.RunEnd.type) as feed:
                async for recorded in feed:
                    payload = ev.payload_of(recorded.event)
                    assert isinstance(payload, ev.RunEnd)
                    return payload.status
        raise AssertionError(f"{run} never ended")


def config_for(home: Path) -> Config:
    return load({"data_dir": home, "sync": "100ms", "tenant": "acme"}, env={}, cwd=home)


@asynccontextmanager
async def hall_at(home: Path) -> AsyncGenerator[Hall]:
    async with (
        open_connection(config_for(home), "test") as connection,
        open_worker(connection, env={}),
        open_service(connection),
    ):
        hall = Hall(connection)
        structlog.configure(processors=[hall.hear])
        await connection.nc.subscribe("test.ask", cb=hall.take)
        yield hall


async def test_runs_wait_and_continue_when_there_is_room(tmp_path: Path) -> None:
    async with hall_at(tmp_path) as hall:
        assert (await hall.client.start(by_nats("waiting"))).status == "accepted"
        with anyio.fail_after(PATIENCE_S):
            await hall.news.wait()
        await fill(hall.connection.log)
        # Its tool answers now, and the answer cannot be recorded.
        await hall.asked[0].respond(b'{"output": 42}')
        # A start is not stored, and its sender gets an error at once.
        with pytest.raises(StoreFull) as told:
            await hall.client.start(start("refused"))
        assert told.value.code == "store.full"
        assert told.value.message.startswith("the start is not stored; the store is full: insufficient resources")
        for verb, body in (
            ("start", start("refused")),
            ("definition", {"source": SOURCE, "name": "n"}),
            ("tell", {"run_id": "waiting", "verb": "cancel"}),
        ):
            answer = await hall.connection.nc.request(f"cb.api.acme.{verb}", json.dumps(body).encode(), timeout=60)
            error = json.loads(answer.data)["error"]
            assert (error["code"], answer.header and answer.header["Nats-Service-Error-Code"]) == ("store.full", "507")
            assert error["remedy"]
        assert (await hall.client.events("waiting"))[-1].type == ev.ToolCall.type
        await make_room(hall.connection.log)
        assert await hall.status("waiting") == "completed"
        assert len(hall.asked) == 1, "a full disk is no reason to carry out anything again"
        assert (await hall.client.start(start("refused"))).status == "accepted"
        assert await hall.status("refused") == "completed"
        assert [said["event"] for said in hall.said] == [
            "the store accepts no messages",
            "the store accepts messages again",
        ]
        assert hall.said[0]["code"] == "store.full"


async def test_a_full_store_can_be_emptied_by_purging(tmp_path: Path) -> None:
    """The remedy that the error names needs room for the marks of the purged runs."""
    runs = ("one", "two", "three")
    async with hall_at(tmp_path) as hall:
        for run in runs:
            await hall.client.start(start(run))
            assert await hall.status(run) == "completed"
        await fill(hall.connection.log)
        with pytest.raises(StoreFull):
            await hall.client.start(start("four"))
        for run in runs:
            assert await purge_run(hall.client, run, PurgeMark(by="ada")) > 0
            with pytest.raises(UnknownRun):
                await hall.client.events(run)
        assert (await hall.client.start(start("four"))).status == "accepted"
        assert await hall.status("four") == "completed"
        again = await hall.client.start(start("one"))
        assert [problem.code for problem in again.problems] == ["run.purged"]


async def test_a_full_store_can_be_emptied_by_moving_runs_to_cold_storage(tmp_path: Path) -> None:
    async with hall_at(tmp_path) as hall:
        for run in ("one", "two", "three"):
            await hall.client.start(start(run))
            assert await hall.status(run) == "completed"
        log = hall.connection.log
        assert log.cold.store is not None
        await fill(log)
        with pytest.raises(StoreFull):
            await hall.client.start(start("four"))
        refs = [hall.client.ref(run) for run in ("one", "two", "three")]
        assert await cool_runs(log, log.cold.store, refs) == refs
        assert (await hall.client.start(start("four"))).status == "accepted"
        assert await hall.status("four") == "completed"


async def test_each_of_many_starts_is_admitted_or_refused_for_lack_of_room(tmp_path: Path) -> None:
    """Starts that were stored without room for the following events are refused, and run later."""
    told: dict[str, StoreFull] = {}
    admitted: list[str] = []

    async with hall_at(tmp_path) as hall:
        await fill(hall.connection.log, leaving=300_000)

        async def one(run: str) -> None:
            try:
                verdict = await hall.client.start(start(run, input={"x": "x" * 5_000}))
            except StoreFull as full:
                told[run] = full
            else:
                assert verdict.status == "accepted"
                admitted.append(run)

        await one("first")
        async with anyio.create_task_group() as tasks:
            for i in range(STARTS):
                tasks.start_soon(one, f"r{i}")
        assert {full.code for full in told.values()} == {"store.full"}
        waits = [run for run, full in told.items() if full.waits]
        assert "first" in admitted
        assert waits
        assert len(waits) + len(admitted) < STARTS, "the others were not even stored"
        assert f"the start of run {waits[0]} is stored and waits" in told[waits[0]].message
        await make_room(hall.connection.log)
        for run in [*waits, *admitted]:
            assert await hall.status(run) == "completed"


async def test_a_plain_nats_client_gets_the_waiting_notice_and_then_the_verdict(tmp_path: Path) -> None:
    async with hall_at(tmp_path) as hall:
        log = hall.connection.log
        verdicts = await log.nc.subscribe("my.verdicts")
        message = json.dumps(start("mine", input={"x": "x" * 30_000})).encode()
        # It goes beyond the end, so that nothing can follow from it.
        await fill(log, leaving=len(message) - 2_000)
        await log.nc.jetstream().publish("cb.start.acme", message, headers={REPLY_HEADER: "my.verdicts"})
        heard: list[Verdict] = []
        while not heard or heard[-1].status == "waiting":
            verdict = msgspec.json.decode((await verdicts.next_msg(timeout=PATIENCE_S)).data, type=Verdict)
            if not heard:
                assert (verdict.status, verdict.run_id) == ("waiting", "mine")
                assert [problem.code for problem in verdict.problems] == ["store.full"]
                await make_room(log)
            heard.append(verdict)
        assert heard[-1].status == "accepted"
        assert await hall.status("mine") == "completed"


async def test_a_command_to_a_full_store_is_refused_at_once(tmp_path: Path) -> None:
    async with hall_at(tmp_path) as hall:
        await fill(hall.connection.log)
        assert hall.connection.server is not None
        (tmp_path / "one.json").write_text(SOURCE)
        at = ["--nats", hall.connection.server.url, "--tenant", "acme", "--json"]
        for command in (["start", *at, str(tmp_path / "one.json"), "--model", "anthropic"], ["cancel", *at, "r1"]):
            with anyio.fail_after(PATIENCE_S):
                done = await anyio.to_thread.run_sync(lambda words=command: CliRunner().invoke(cli, words))
            assert done.exit_code == exits.UNUSABLE, done.output
            assert json.loads(done.stdout)["error"]["code"] == "store.full"
        await make_room(hall.connection.log)
