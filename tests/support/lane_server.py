"""One NATS server for all tests of a process of pytest, on which each test has an account: nothing of it is shared.

`open_connection` and all above it get an account per data directory instead of a server: 5 ms of processor time instead
of 40. Other processes find it by the data directory while it is open here. `AccountServer(tmp_path)` replaces an
`EmbeddedServer`, and the fixture ``nats_url`` is the URL of an account. A test that kills, restarts, fills, damages or
configures its server, or looks through its files, takes the fixture `own_servers`, or ``sync`` in `open_fleet`.
"""

import json
import os
import subprocess
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import anyio
import pytest

from callboard.bus.nats.server.data_directory import PENDING_BYTES_MAX, Ports, running_url
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.nats.server.memory_staging import MEMORY
from callboard.bus.nats.server.program import find_server
from callboard.lib.temporary_folders import TemporaryFolder
from callboard.runtime.client import connection
from tests.support.cluster import tied

ACCOUNTS = 256
"""Accounts of a server. When all have been used, another server is started."""

OWN = ("tests/surfaces/cli/", "tests/docs/", "tests/e2e/attacks/test_damage.py", "tests/surfaces/mcp/test_server.py")
"""Folders and modules in which several processes start the server of one store after each other."""

START_WAIT_S = 60.0
POLL_S = 0.01

MEMORY_BYTES_MIN = 4 * 1024**3
"""The servers store in the file system in memory if this number of bytes is free: that halves their time."""


@dataclass
class Account:
    """An account with one user, whose name and password are ``user``, on a server with the process id ``pid``."""

    user: str
    ports: Ports
    pid: int

    @property
    def url(self) -> str:
        return f"nats://{self.user}@127.0.0.1:{self.ports.port}"


class LaneServer:
    """The servers of this process. An account is used once, and what it stores stays to the end."""

    def __init__(self) -> None:
        self._folders: list[TemporaryFolder] = []
        self._servers: list[subprocess.Popen[bytes]] = []
        self._unused: list[Account] = []
        self._accounts: dict[Path, Account] = {}
        self.thread = ThreadPoolExecutor(1)
        """One thread, which starts the servers: they end with the thread that has started them."""

    def account_of(self, folder: Path) -> Account:
        """Return the account of a folder: always the same one."""
        if folder not in self._accounts:
            if not self._unused:
                self._start()
            self._accounts[folder] = self._unused.pop()
        return self._accounts[folder]

    def close(self) -> None:
        for process in self._servers:
            process.kill()
            process.wait()
        self.thread.shutdown()
        for folder in self._folders:
            folder.remove()

    def _start(self) -> None:
        roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and disk_usage(MEMORY).free > MEMORY_BYTES_MIN
        self._folders.append(TemporaryFolder(MEMORY if roomy else None))
        home = self._folders[-1].path
        users = [f"test-{i}" for i in range(ACCOUNTS)]
        accounts = [f"  {user} {{jetstream: enabled, users: [{{user: {user}, password: x}}]}}" for user in users]
        config = [
            'host: "127.0.0.1", port: -1, http: "127.0.0.1:-1"',
            f'ports_file_dir: "{home}", log_file: "{home}/log", max_pending: {PENDING_BYTES_MAX}',
            f'jetstream {{store_dir: "{home}", sync_interval: "10m"}}',
            *("accounts {", *accounts, "}"),
        ]
        (home / "server.conf").write_text("\n".join(config))
        command = tied([find_server(), "-c", str(home / "server.conf")])
        process = self.thread.submit(subprocess.Popen, command).result()
        self._servers.append(process)
        ends = monotonic() + START_WAIT_S
        while (ports := _ports(home)) is None:
            assert process.poll() is None, (home / "log").read_text()
            assert monotonic() < ends, f"the server was not ready after {START_WAIT_S} s"
            sleep(POLL_S)
        self._unused = [Account(f"{user}:x", ports, process.pid) for user in users]


def _ports(home: Path) -> Ports | None:
    """Return the ports of the server once it listens."""
    for file in home.glob("*.ports"):
        try:
            said = json.loads(file.read_bytes())
        except ValueError:
            return None
        return Ports(*(int(said[name][0].rpartition(":")[2]) for name in ("nats", "monitoring")))
    return None


class AccountServer(EmbeddedServer):
    """An account of the lane's server, which looks like an embedded server over a data directory."""

    lane: LaneServer

    @property
    def pid(self) -> int:
        return self._account.pid

    @property
    def _account(self) -> Account:
        return self.lane.account_of(self._store.home)

    async def __aenter__(self) -> Self:
        await self._store.lock()
        account = self._account
        self._port, self._monitoring_port = account.ports.port, account.ports.monitoring_port
        (self._store.home / "jetstream").mkdir(exist_ok=True)
        (self._store.home / "token").write_text(account.user)
        self._store.remember(account.pid, self._port)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._store.unlock()

    def stage_in_memory(self, stream: str) -> bool:
        return False

    def kill(self) -> None:
        raise RuntimeError("other tests use this server: take the fixture `own_servers`")


@contextmanager
def held(data_dir: Path) -> Generator[None]:
    """Keep the account of a data directory open for the length of the block, so that other processes join it.

    Nothing happens where it is open already, or where each data directory has a separate server.
    """
    if connection.EmbeddedServer is not AccountServer or running_url(data_dir) is not None:
        yield
        return
    server, lane = AccountServer(data_dir), AccountServer.lane
    lane.account_of(data_dir.absolute() / "nats")
    # The thread of a test may have an event loop.
    lane.thread.submit(anyio.run, server.__aenter__).result()
    try:
        yield
    finally:
        lane.thread.submit(anyio.run, server.__aexit__, None, None, None).result()


@pytest.fixture(scope="session", autouse=True)
def lane() -> Iterator[LaneServer]:
    lane = AccountServer.lane = LaneServer()
    yield lane
    lane.close()


@pytest.fixture(scope="module", autouse=True)
def shared_servers(request: pytest.FixtureRequest, lane: LaneServer) -> Iterator[None]:
    """Give each data directory that is opened in this process an account instead of a server."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.nodeid.startswith(OWN):
            patch.setattr(connection, "EmbeddedServer", AccountServer)
        yield


@pytest.fixture
def own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each data directory a separate server, as outside of tests."""
    monkeypatch.setattr(connection, "EmbeddedServer", EmbeddedServer)


@pytest.fixture
def nats_url(lane: LaneServer, tmp_path: Path) -> str:
    """Return the URL of an account that no other test uses."""
    return lane.account_of(tmp_path).url
