"""A server, a worker that counts its calls and a process that serves HTTP, for `benchmarks.counts`."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio import to_thread
from nats.aio.msg import Msg

from benchmarks.counted_worker import NAME as WORKER
from benchmarks.counted_worker import PARTITIONS, ROOT, Function, Orders, Snapshot
from benchmarks.footprint import CALLBOARD
from benchmarks.staffed import fresh_deployment
from callboard.bus import events as ev
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.server.data_directory import ServerStore
from callboard.runtime.client.connection import Connection

CALLER = "callboard"
"""The name of the connection that starts runs, which is that of this process."""

PROCESSOR = "processor ms: "
"""The beginning of the names of these counts, which are not exact."""

PATIENCE_S = 120.0


Call = tuple[Function | None, Function]
"""The caller of a function, if it is known, and the function."""


class Totals(NamedTuple):
    """The counts of all processes since they started: of calls, and by name of others. ``at`` is a time in seconds."""

    at: float
    counts: Mapping[Call | str, float]


class Site:
    """The processes, and this one, which starts runs and hears their ends."""

    def __init__(
        self, connection: Connection, worker: subprocess.Popen[bytes], observer: subprocess.Popen[bytes]
    ) -> None:
        self._connection = connection
        self._worker = worker
        self._observer = observer
        self._api = _url_of(observer)
        self._ends: dict[str, asyncio.Future[str]] = {}
        self._runs = 0

    async def begin(self) -> None:
        """Listen for the ends of runs, and wait until the worker is ready."""
        subject = self._connection.log.subjects.events(event_type=ev.RunEnd.type)
        await self._connection.nc.subscribe(subject, cb=self._hear)
        await self._snapshot()

    async def _hear(self, message: Msg) -> None:
        run = self._connection.log.subjects.parse_event(message.subject).ref.run
        self._ends.pop(run).set_result(json.loads(message.data)["payload"]["status"])

    async def perform(self, starts: Iterable[Mapping[str, Any]]) -> None:
        """Perform runs one after the other."""
        for start in starts:
            await self._perform_one(start)

    async def _perform_one(self, start: Mapping[str, Any]) -> None:
        self._runs += 1
        run = f"run-{self._runs}"
        end = self._ends[run] = asyncio.get_running_loop().create_future()
        with anyio.fail_after(PATIENCE_S):
            verdict = await self._connection.client.start({**start, "run_id": run})
            assert verdict.status == "accepted", verdict
            status = await end
        assert status == "completed", status

    async def totals(self) -> Totals:
        """Return all counts, as soon as the worker performs no run and the index knows all events."""
        worker, at = await self._snapshot(), time.monotonic()
        await _get(f"{self._api}/runs?limit=1")
        log, server = self._connection.log, self._connection.server
        assert server is not None
        state = (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]
        ports = ServerStore(self._connection.config.data_dir.absolute() / "nats").ports_of(server.pid)
        assert ports is not None
        monitor = f"http://127.0.0.1:{ports.monitoring_port}"
        whole, connections = await _get(f"{monitor}/varz"), await _get(f"{monitor}/connz")
        observers = [one for one in connections["connections"] if one["name"] not in (WORKER, CALLER)]
        counts: dict[Call | str, float] = {(caller, function): count for caller, function, count in worker.calls}
        counts |= {
            "events": state["messages"],
            "bytes stored": state["bytes"],
            "messages: worker sent": worker.sent,
            "messages: worker received": worker.received,
            "messages: server sent": whole["out_msgs"],
            "messages: server received": whole["in_msgs"],
            "messages: observers sent": sum(one["in_msgs"] for one in observers),
            "messages: observers received": sum(one["out_msgs"] for one in observers),
        }
        for name, pid in (("server", server.pid), ("worker", self._worker.pid), ("observers", self._observer.pid)):
            counts[f"{PROCESSOR}{name}"] = _processor_ms(pid)
        return Totals(at, counts)

    async def _snapshot(self) -> Snapshot:
        stdin, stdout = self._worker.stdin, self._worker.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"snapshot\n")
        stdin.flush()
        return msgspec.json.decode(await to_thread.run_sync(stdout.readline), type=Snapshot)

    async def system_calls(self, starts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        """Perform runs, and return the system calls of the worker by name, none if they cannot be traced here."""
        with _traced(self._worker.pid) as tracer:
            if tracer is None or tracer.stderr is None:
                return {}
            if b"attached" not in await to_thread.run_sync(tracer.stderr.readline):
                return {}
            await self.perform(starts)
            await self._snapshot()
            tracer.send_signal(signal.SIGINT)
            table, _errors = await to_thread.run_sync(tracer.communicate)
        lines = [line.split() for line in table.decode().splitlines()]
        return {one[0]: int(one[1]) for one in lines if len(one) == 2 and one[1].isdigit() and one[0] != "total"}


@asynccontextmanager
async def open_site(code: Path | None = None, *, counts_calls: bool = True) -> AsyncGenerator[Site]:
    """Start a server, a worker that hosts ``code``, and a process that serves HTTP, in a temporary folder."""
    async with fresh_deployment("always", partitions=PARTITIONS) as connection:
        assert connection.server is not None
        folder = connection.config.data_dir
        orders = Orders(connection.server.url, str(folder), None if code is None else str(code), counts_calls)
        serve = [CALLBOARD, "http", "--json", "--listen", "127.0.0.1:0", "--data-dir", str(folder)]
        with (
            _started([sys.executable, "-m", "benchmarks.counted_worker"]) as worker,
            _started(serve) as observer,
        ):
            assert worker.stdin is not None
            worker.stdin.write(msgspec.json.encode(orders) + b"\n")
            worker.stdin.flush()
            site = Site(connection, worker, observer)
            await site.begin()
            yield site


@contextmanager
def _started(command: list[str]) -> Generator[subprocess.Popen[bytes]]:
    env = {**os.environ, "CALLBOARD_LOG_LEVEL": "warning", "CALLBOARD_PARTITIONS": str(PARTITIONS)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _traced(pid: int) -> Generator[subprocess.Popen[bytes] | None]:
    """Count the system calls of a process until SIGINT; None without strace."""
    if (strace := shutil.which("strace")) is None:
        yield None
        return
    command = [strace, "-c", "-f", "-U", "name,calls", "-o", "/dev/stdout", "-p", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tracer:
        try:
            yield tracer
        finally:
            tracer.terminate()


def _url_of(observer: subprocess.Popen[bytes]) -> str:
    assert observer.stdout is not None
    said = json.loads(observer.stdout.readline())
    assert "url" in said, said
    return said["url"]


async def _get(url: str) -> Any:
    def get() -> Any:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    return await to_thread.run_sync(get)


def _processor_ms(pid: int) -> float:
    """Return the processor time of a process in milliseconds, in ticks of ten (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
