"""A disk that is full: the embedded server stops short of its end, comes back from it, and says so before.

The disk is a small file system in memory, which only root can mount.
"""

import os
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import structlog

from callboard.bus.errors import StoreFull, StreamBounded
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.server import data_directory as serverstore
from callboard.bus.nats.server import disk_limit as serverroom
from callboard.bus.nats.server import embedded as server
from callboard.bus.nats.server.data_directory import ServerStore
from callboard.bus.nats.server.disk_limit import ServerSpace
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.nats.server.program import StoreUsage
from callboard.bus.subjects import Subjects
from callboard.runtime.client.connection import open_connection
from callboard.runtime.worker import store_watch
from callboard.service.operations.removal import purge_run
from callboard.service.worker.bootstrap import open_worker
from callboard.service.worker.figures import unready
from tests.support.full_store import Deployment, config_for, open_deployment, start_with_nats_tool
from tests.support.full_store import start as start_with_text
from tests.support.patience import until
from tests.support.workdir import Workdir

pytestmark = pytest.mark.usefixtures("own_servers")

PATIENCE_S = 60.0
DISK_BYTES = 48 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of `DISK_BYTES`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leaving: int = 0) -> Path:
    """Fill a disk with a file and leave a number of bytes free."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize:
            if free <= leaving:
                break
            file.write(b"x" * min(65_536, free - leaving))
    return ballast


@asynccontextmanager
async def log_on(disk: Path) -> AsyncGenerator[tuple[EmbeddedServer, JetStreamLog]]:
    async with EmbeddedServer(disk, sync="100ms") as embedded, open_nats_connection(embedded.url, name="test") as nc:
        yield embedded, await open_log(nc, Subjects(), partitions=16)


async def refused(log: JetStreamLog) -> list[int]:
    """Publish until the store is full; return the sequences of the stored messages."""
    stored: list[int] = []
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                stored.append(await log.publish(OutgoingMessage("cb.start.acme", b"x" * 100_000, {})))
            except Full:
                return stored


async def taken(log: JetStreamLog) -> int:
    """Publish a message repeatedly until it is stored; the server may be restarted in between."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await log.publish(OutgoingMessage("cb.start.acme", b"at last", {}))
            except (Full, NoAnswer):
                await anyio.sleep(0.05)


async def check(log: JetStreamLog, stored: list[int]) -> None:
    stream = log.nc.jetstream()
    for sequence in stored:
        assert len((await stream.get_msg(log.stream, sequence)).data or b"") == 100_000


async def test_a_server_stops_storing_before_the_disk_is_full_and_resumes(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = anyio.Event()
    async with (
        EmbeddedServer(disk, sync="100ms", on_restart=lambda _: lowered.set()) as embedded,
        open_nats_connection(embedded.url, name="test") as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=1)
        before = await embedded.usage()
        assert before is not None
        assert before.left > 0.7 * DISK_BYTES
        ballast = fill(disk, leaving=8_000_000)
        monkeypatch.setattr(server, "HEALTH_INTERVAL_S", 0.1)
        with anyio.fail_after(PATIENCE_S):
            await lowered.wait()
        pid, stored = embedded.pid, await refused(log)
        assert stored
        usage = await embedded.usage()
        assert usage is not None
        assert usage.left < 200_000, "the bound, not the wall"
        with pytest.raises(Full) as full:
            await log.publish(OutgoingMessage("cb.start.acme", b"{}", {}))
        assert not full.value.failing
        ballast.unlink()
        await taken(log)
        await check(log, stored)
        assert embedded.pid == pid, "no new server is needed to hold more"


async def test_a_server_that_could_not_write_is_restarted_when_there_is_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerStore, "bytes_max", lambda *_: 10**12)
    async with log_on(disk) as (embedded, log):
        monkeypatch.setattr(server, "HEALTH_INTERVAL_S", 0.1)
        pid, ballast = embedded.pid, fill(disk, leaving=4_000_000)
        stored = await refused(log)
        with pytest.raises(Full) as full:
            await log.publish(OutgoingMessage("cb.start.acme", b"{}", {}))
        assert full.value.failing
        assert embedded.pid == pid, "there is no room: another server would not do better"
        ballast.unlink()
        await taken(log)
        await check(log, stored)
        assert embedded.pid != pid


async def test_a_server_on_a_full_disk_is_restarted_when_there_is_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot write which ports it has, so it is not known to be ready."""
    async with log_on(disk) as (embedded, log):
        stored = [await log.publish(OutgoingMessage("cb.start.acme", b"x" * 100_000, {})) for _ in range(150)]
        monkeypatch.setattr(server, "HEALTH_INTERVAL_S", 0.1)
        # The configuration of another server fits, and little else.
        pid, ballast = embedded.pid, fill(disk, leaving=8_000)
        store = ServerStore(disk / "nats")
        await until(lambda: embedded.pid != pid and any(store.ports.glob(f"*_{embedded.pid}.ports")))
        assert store.ports_of(embedded.pid) is None, "the file is empty"
        ballast.unlink()
        await taken(log)
        await check(log, stored)


async def test_runs_continue_after_the_disk_was_full(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerStore, "bytes_max", lambda *_: 10**12)
    async with open_connection(config_for(disk), "test") as connection, open_worker(connection, env={}):
        monkeypatch.setattr(server, "HEALTH_INTERVAL_S", 0.1)
        deployment = Deployment(connection)
        await connection.nc.subscribe("test.ask", cb=deployment.take_request)
        assert (await deployment.client.start(start_with_nats_tool("waiting"))).status == "accepted"
        with anyio.fail_after(PATIENCE_S):
            await deployment.has_request.wait()
        ballast = fill(disk)
        await refused(connection.log)
        # Its tool answers now, and the answer cannot be recorded.
        await deployment.tool_requests[0].respond(b'{"output": 42}')
        with pytest.raises(StoreFull) as told:
            await deployment.client.start(start_with_nats_tool("refused"))
        assert told.value.code == "store.failing"
        ballast.unlink()
        assert await deployment.status("waiting") == "completed"
        assert len(deployment.tool_requests) == 1, "a full disk is no reason to carry out anything again"


async def test_a_server_is_not_started_without_free_space(disk: Path) -> None:
    ballast = fill(disk)
    with pytest.raises(StoreFull) as told:
        async with EmbeddedServer(disk):
            pass
    assert told.value.where == str(disk / "nats")
    ballast.unlink()
    async with EmbeddedServer(disk):
        pass


async def test_up_warns_before_the_store_is_full(disk: Path) -> None:
    workdir = Workdir(disk)
    async with log_on(disk / ".callboard") as (_, log):
        for _ in range(40):
            await log.publish(OutgoingMessage("cb.start.acme", b"x" * 100_000, {}))
    fill(disk, leaving=400_000)
    with workdir.process("up") as process:
        assert process.stderr is not None
        assert any("the store is nearly full" in line for line in process.stderr)


# -- without a separate disk ------------------------------------------------------------------------------------------


MB = 1_000_000


@pytest.mark.parametrize(
    ("told", "now", "raised", "why"),
    [
        (10**6 * MB, 10**5 * MB, False, ""),
        (10**6 * MB, 100 * MB, False, "exceeds the free space of its disk"),
        (60 * MB, 10**6 * MB, True, ""),
        (100 * MB, 10**6 * MB, False, ""),
        (100 * MB, 60 * MB, False, ""),
        (100 * MB, 40 * MB, False, "exceeds the free space"),
        (50_000, 10_000, False, ""),
        (10_000, 50_000, True, ""),
        (10_000, 10_500, False, ""),
        (-5 * MB, 10 * MB, True, ""),
        (-5 * MB, -1 * MB, False, ""),
        (10 * MB, -5 * MB, False, "exceeds the free space"),
    ],
)
async def test_the_limit_of_a_server_follows_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int, now: int, raised: bool, why: str
) -> None:
    signals: list[int] = []
    store = ServerStore(tmp_path)
    store.config.write_text("jetstream {\n  max_file_store: 1\n}\n")
    used = 1_000 * MB

    async def usage(_port: int) -> StoreUsage:
        return StoreUsage(used, used + told)

    monkeypatch.setattr(serverroom, "usage", usage)
    monkeypatch.setattr(serverroom.os, "kill", lambda _pid, number: signals.append(number))
    monkeypatch.setattr(ServerStore, "bytes_max", lambda _store: used + now)
    said = await ServerSpace(store).fit(7, 8, "")
    assert (said == "") if not why else (why in said)
    assert bool(signals) is raised
    assert (f"max_file_store: {used + now}\n" in store.config.read_text()) is raised


def test_the_reserved_space_stays_free_while_the_disk_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 1_000 * MB
    monkeypatch.setattr(serverstore.shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    store = ServerStore(tmp_path)
    assert store.bytes_max() == 950 * MB
    store.used, free = 7, 100 * MB
    assert store.bytes_max() == 7 + 50 * MB
    store.used, free = 500 * MB, 0
    assert store.bytes_max() == 450 * MB


async def test_a_server_that_cannot_write_is_restarted_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = ServerSpace(ServerStore(tmp_path))
    ill = "JetStream stream '$G > S' write error: input/output error"
    now = 0.0
    monkeypatch.setattr(serverroom.anyio, "current_time", lambda: now)
    assert await room.fit(7, 8, "no answer: TimeoutError()") == ""
    renewed: list[float] = []
    for now in range(120):
        if await room.fit(7, 8, ill):
            renewed.append(now)
    assert renewed == [0, 5, 15, 35, 75]
    now = 10_000
    assert await room.fit(7, 8, ill)
    now = 10_005
    assert await room.fit(7, 8, ill)
    (tmp_path / "room").mkdir()
    now = 20_000
    assert await room.fit(7, 8, ill) == "", "the disk takes nothing"


async def bound(log: JetStreamLog, **bounds: int) -> None:
    stream = log.nc.jetstream()
    config = (await stream.stream_info(log.stream)).config
    await stream.update_stream(config.evolve(**bounds))


async def test_stream_limits_are_removed_on_an_embedded_server_and_refused_elsewhere(tmp_path: Path) -> None:
    async with (
        EmbeddedServer(tmp_path, sync="100ms") as embedded,
        open_nats_connection(embedded.url, name="test") as nc,
    ):
        log = await open_log(nc, Subjects(), partitions=1, ours=True)
        for name in ("max_bytes", "max_msgs", "max_msgs_per_subject", "max_age"):
            await bound(log, **{name: 1_000_000})
            with pytest.raises(StreamBounded, match=f"it has {name} 1000000"):
                await open_log(nc, Subjects(), partitions=1)
            await open_log(nc, Subjects(), partitions=1, ours=True)
            await open_log(nc, Subjects(), partitions=1)


async def test_a_worker_warns_when_the_stream_gets_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "LOOK_S", 0.02)
    said: list[str] = []
    news = anyio.Event()

    def record_log_entry(_logger: Any, _method: str, entry: Any) -> Any:
        if entry.get("code"):
            said.append(entry["code"])
            news.set()
        raise structlog.DropEvent

    async with open_connection(config_for(tmp_path), "test") as connection, open_worker(connection, env={}):
        structlog.configure(processors=[record_log_entry])
        await bound(connection.log, max_msgs=1_000)
        with anyio.fail_after(PATIENCE_S):
            await news.wait()
    assert set(said) == {"stream.bounded"}


async def test_an_import_is_refused_if_the_stream_would_drop_messages_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_watch, "LOOK_S", 0.02)
    async with (
        open_connection(config_for(tmp_path), "test") as connection,
        open_worker(connection, env={}) as worker,
    ):
        log = connection.log
        news: list[Full | None] = []
        heard = anyio.Event()

        def record_change(full: Full | None) -> None:
            news.append(full)
            heard.set()

        log.room.listen(record_change)
        message = OutgoingMessage(log.subjects.reject("default", "x"), b"{}" * 500, {})
        for _ in range(20):
            await log.publish(message)
        held = (await log.nc.jetstream().stream_info(log.stream)).state
        await bound(log, max_bytes=held.bytes + held.bytes // 20)
        with anyio.fail_after(PATIENCE_S):
            await heard.wait()
        with pytest.raises(Full, match="drops its oldest events, and holds 9"):
            await log.publish(message)
        assert "drops its oldest" in unready(worker, connection)
        heard = anyio.Event()
        await bound(log, max_bytes=-1)
        with anyio.fail_after(PATIENCE_S):
            await heard.wait()
        await log.publish(message)
        assert (news[-1], unready(worker, connection)) == (None, "")
        found = (await log.nc.jetstream().stream_info(log.stream)).state
        assert found.first_seq == held.first_seq


async def test_a_full_disk_can_be_emptied_by_purging(disk: Path) -> None:
    """To remove a run the server writes a file of the store again, for which it needs room on the disk."""
    async with open_deployment(disk) as deployment:
        for run in ("one", "two"):
            await deployment.client.start({**start_with_text(run), "input": {"text": "x" * 400_000}})
            assert await deployment.status(run) == "completed"
        await refused(deployment.connection.log)
        for run in ("one", "two"):
            assert await purge_run(deployment.client, run, PurgeMark()) > 0
        assert (await deployment.client.start(start_with_text("three"))).status == "accepted"
        assert await deployment.status("three") == "completed"
