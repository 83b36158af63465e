"""A real JetStream cluster of three servers on loopback, for tests: kill a server, bring it back, find a leader."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from callboard.bus.nats.server.program import find_server
from tests.support.ports import free_ports

SERVERS = 3
READY_WAIT_S = 60.0
POLL_S = 0.05
ASK_WAIT_S = 2.0
STOP_WAIT_S = 10.0


class Cluster:
    """Three servers, numbered 0 to 2, named ``n0`` to ``n2``; fixed ports, so that clients reconnect."""

    def __init__(self, home: Path, sync: str) -> None:
        self._home = home
        self._sync = sync
        ports = free_ports(3 * SERVERS)
        self._clients, self._routes, self._monitors = (ports[i::3] for i in range(3))
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * SERVERS

    @property
    def url(self) -> str:
        """All servers, as `callboard.bus.nats.connection.connect` takes them."""
        return ",".join(self.urls)

    @property
    def urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self._clients]

    def running(self, i: int) -> bool:
        process = self._processes[i]
        return process is not None and process.poll() is None

    def kill(self, i: int) -> None:
        """End server i as a crash would (SIGKILL)."""
        self._end(i, signal.SIGKILL)

    def stop(self, i: int) -> None:
        """End server i in good order (SIGTERM)."""
        self._end(i, signal.SIGTERM)

    async def restart(self, i: int) -> None:
        """Start server i again over its store, and wait until it is healthy (caught up with its peers)."""
        self.start(i)
        await self._healthy(i)

    def start(self, i: int) -> None:
        if self.running(i):
            raise RuntimeError(f"server n{i} is running")
        config = self._home / f"n{i}.conf"
        config.write_text(self._config(i))
        with (self._home / f"n{i}.out").open("ab") as out:
            command = [find_server(), "-c", str(config)]
            self._processes[i] = subprocess.Popen(tied(command), stdout=out, stderr=out, start_new_session=True)

    async def ready(self) -> None:
        """Wait until every server is up and the cluster has a leader that takes requests."""
        for i in range(SERVERS):
            await self._healthy(i)
        await self._until(lambda: self._any("/jsz", lambda said: bool(said.get("meta_cluster", {}).get("leader"))))

    async def leader(self, stream: str) -> int:
        """Return the number of the server that leads a stream; waits while there is an election."""
        found: list[int] = []

        def look() -> bool:
            for i in filter(self.running, range(SERVERS)):
                said = self._ask(i, "/jsz?streams=1&raft=1") or {}
                for account in said.get("account_details", []):
                    for detail in account.get("stream_detail", []):
                        name = detail.get("cluster", {}).get("leader", "")
                        # Only the answer of the leader counts: other servers may still name a leader that has died.
                        if detail["name"] == stream and name == f"n{i}":
                            found.append(i)
                            return True
            return False

        await self._until(look)
        return found[0]

    async def close(self) -> None:
        for i in range(SERVERS):
            self.kill(i)

    def _end(self, i: int, how: signal.Signals) -> None:
        process = self._processes[i]
        if process is not None:
            process.send_signal(how)
            process.wait(STOP_WAIT_S)
            self._processes[i] = None

    async def _healthy(self, i: int) -> None:
        await self._until(lambda: (self._ask(i, "/healthz") or {}).get("status") == "ok")

    def _any(self, path: str, holds: Callable[[dict[str, Any]], bool]) -> bool:
        said = [self._ask(i, path) for i in range(SERVERS) if self.running(i)]
        return any(holds(answer) for answer in said if answer)

    def _ask(self, i: int, path: str) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitors[i]}{path}", timeout=ASK_WAIT_S) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    async def _until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(READY_WAIT_S):
            while not await anyio.to_thread.run_sync(holds):  # noqa: ASYNC110 - the server is another process
                await anyio.sleep(POLL_S)

    def _config(self, i: int) -> str:
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        return f"""
server_name: "n{i}"
host: "127.0.0.1"
port: {self._clients[i]}
http: "127.0.0.1:{self._monitors[i]}"
jetstream {{ store_dir: {json.dumps(str(self._home / f"n{i}"))}, sync_interval: "{self._sync}" }}
cluster {{ name: "callboard-test", host: "127.0.0.1", port: {self._routes[i]}, routes: [{routes}] }}
"""


@contextlib.asynccontextmanager
async def cluster(home: Path, *, sync: str = "100ms") -> AsyncGenerator[Cluster]:
    """Start a cluster below ``home`` and end it with the block; its stores are removed."""
    servers = Cluster(home, sync)
    try:
        for i in range(SERVERS):
            servers.start(i)
        await servers.ready()
        yield servers
    finally:
        await servers.close()
        for i in range(SERVERS):
            shutil.rmtree(home / f"n{i}", ignore_errors=True)


def tied(command: list[str]) -> list[str]:
    """Make a command that ends with this process, also if this one is killed (on Linux)."""
    if sys.platform != "linux":
        return command
    tie = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", tie, *command]
