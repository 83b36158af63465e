"""Many followers over HTTP: the maximum, slow and stuck ones, and deaths of servers."""

import json
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from starlette.types import Scope

from callboard.surfaces.http import app as module
from callboard.surfaces.http import http_server, live, rings
from callboard.surfaces.http.address import listening, url_of
from tests.e2e.test_child_processes import read_log_entry
from tests.support.flows import flow, returned
from tests.support.http_application import PATIENCE_S, code_of, served
from tests.support.workdir import Workdir

READER_BYTES_MAX = 128 * 1024
"""The memory of a follower: its connection at both ends, and the tasks that serve it."""

STARTS = 40
AT_ONCE = 64
"""Fewer than the backlog of connections to accept."""
FOLLOWERS = 2 * AT_ONCE
LARGE_RUNS = 40
"""Their inputs and outputs exceed the buffers of a connection."""


TOKEN = "t0ken"


def start_message(run: str, output: Any = 1) -> dict[str, Any]:
    return {"definition": {"source": json.dumps(flow({"r": returned(output)}))}, "run_id": run}


def open_reader(client: httpx2.AsyncClient, query: str, window: int | None = None) -> socket.socket:
    """Follow over a new connection; ``window`` bounds its receive buffer."""
    found = socket.socket()
    if window is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    found.connect((client.base_url.host, client.base_url.port))
    found.sendall(f"GET /api/acme/live?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    found.setblocking(False)
    return found


async def receive(reader: socket.socket, size: int) -> bytes:
    await anyio.wait_readable(reader)
    found = reader.recv(size)
    assert found, "the server has disconnected"
    return found


async def wait_for_text(reader: socket.socket, text: bytes) -> None:
    found = b""
    with anyio.fail_after(PATIENCE_S):
        while text not in found:
            found += await receive(reader, 65_536)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_a_follower_above_the_maximum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIVE_MAX", FOLLOWERS)
    readers: list[socket.socket] = []
    async with served(tmp_path) as (client, _):
        await client.get("/runs")
        before = resident_bytes()
        with ExitStack() as stack:
            while len(readers) < FOLLOWERS:
                some = [stack.enter_context(open_reader(client, "type=run.end")) for _ in range(AT_ONCE)]
                for reader in some:
                    await wait_for_text(reader, b": live\n\n")
                readers += some
            busy = await client.get("/live")
            assert code_of(busy) == (503, "api.busy")
            assert resident_bytes() - before < FOLLOWERS * READER_BYTES_MAX
            assert (await client.post("/runs", json=start_message("one"))).status_code == 202
            for reader in readers:
                await wait_for_text(reader, b"event: run.end")
        assert await follow_when_free(client) == b": live\n\n"


async def follow_when_free(client: httpx2.AsyncClient) -> bytes:
    """Follow as soon as a place is free; return the first bytes."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            async with client.stream("GET", "/live") as answer:
                if answer.status_code == 200:
                    return await anext(answer.aiter_raw())
            await anyio.sleep(0.01)


async def test_a_slow_reader_misses_nothing_and_a_stuck_one_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The third reader never reads; the others must not be slowed down by it.
    monkeypatch.setattr(live, "WRITE_WAIT_S", PATIENCE_S * 2)
    monkeypatch.setattr(rings, "BYTES_MAX", 500_000)
    left = anyio.Event()

    class CountedLive(live.Live):
        async def __call__(self, *args: Any) -> None:
            await super().__call__(*args)
            left.set()

    monkeypatch.setattr(module, "Live", CountedLive)
    found: dict[str, list[str]] = {}
    async with served(tmp_path) as (client, _):
        with ExitStack() as stack, anyio.fail_after(PATIENCE_S * 2):
            stack.enter_context(open_reader(client, "after=0", 4_096))

            async def read(name: str, size: int, pause_s: float) -> None:
                reader = stack.enter_context(open_reader(client, "after=0", 4_096))
                rest, seen = b"", list[str]()
                while seen.count("run.end") < LARGE_RUNS:
                    *lines, rest = (rest + await receive(reader, size)).split(b"\n")
                    seen += [line.decode().partition(": ")[2] for line in lines if line.startswith((b"id", b"event"))]
                    await anyio.sleep(pause_s)
                found[name] = seen

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read, "fast", 1_000_000, 0)
                tasks.start_soon(read, "slow", 16_384, 0.001)
                for number in range(LARGE_RUNS):
                    assert (
                        await client.post("/runs", json=start_message(f"r{number}", "x" * 60_000))
                    ).status_code == 202
            assert not left.is_set()
            monkeypatch.setattr(live, "WRITE_WAIT_S", 0.1)
            stack.enter_context(open_reader(client, "after=0", 4_096))
            await left.wait()
    assert found["slow"] == found["fast"]
    assert found["fast"][0] == "0"
    numbers = [int(one) for one in found["fast"][1::2]]
    assert numbers == sorted(set(numbers))


# -- deaths -----------------------------------------------------------------------------------------------------------


class KillableUp:
    """`callboard up` whose HTTP address stays the same when processes die."""

    def __init__(self, workdir: Workdir, stack: ExitStack) -> None:
        self._workdir, self._stack = workdir, stack
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._listen = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{self._listen}/api/default"
        self._up()

    def _up(self) -> None:
        env = {"CALLBOARD_HTTP_LISTEN": self._listen, "CALLBOARD_HTTP_TOKEN": TOKEN, "CALLBOARD_LOG_FORMAT": "json"}
        self._process = self._stack.enter_context(self._workdir.process("up", "--json", env=env))
        self._serving = int(read_log_entry(self._process, "child process was started")["pid"])

    def kill_http(self) -> None:
        """Kill the process that serves HTTP; `up` starts another one."""
        os.kill(self._serving, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill worker, server and HTTP, and start them again."""
        self._process.kill()
        self._process.communicate()
        self._up()


async def test_starts_and_followed_events_survive_the_death_of_servers(tmp_path: Path) -> None:
    wanted = {f"r{number}" for number in range(STARTS)}
    with ExitStack() as stack:
        up = await to_thread.run_sync(KillableUp, Workdir(tmp_path), stack)
        kills = {STARTS // 4: up.kill_http, STARTS // 2: up.kill_all}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(base_url=up.url, headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
            ended: list[tuple[int, str]] = []
            few = anyio.CapacityLimiter(8)
            acknowledged: list[str] = []

            async def read() -> None:
                async with aclosing(follow_ends(client)) as ends:
                    async for one in ends:
                        ended.append(one)
                        if len(ended) == STARTS:
                            return

            async def start_one(run: str) -> None:
                async with few:
                    await start_until_acknowledged(client, run)
                acknowledged.append(run)
                if (kill := kills.get(len(acknowledged))) is not None:
                    await to_thread.run_sync(kill)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                for run in wanted:
                    tasks.start_soon(start_one, run)
            assert {run for _, run in ended} == wanted
            assert [number for number, _ in ended] == sorted({number for number, _ in ended})
            # A repeated start is a duplicate.
            assert (await start_until_acknowledged(client, acknowledged[0]))["duplicate"]


async def start_until_acknowledged(client: httpx2.AsyncClient, run: str) -> dict[str, Any]:
    """Send a start under the same key until it is acknowledged."""
    while True:
        with suppress(httpx2.TransportError):
            answer = await client.post("/runs", json=start_message(run), headers={"Idempotency-Key": run})
            if answer.status_code == 202:
                return answer.json()
            assert answer.status_code == 503, answer.text
        await anyio.sleep(0.05)


async def follow_ends(client: httpx2.AsyncClient) -> AsyncGenerator[tuple[int, str]]:
    """Follow the ends of runs as browsers do: after a disconnection, from the last event."""
    last = 0
    while True:
        with suppress(httpx2.TransportError):
            async with client.stream(
                "GET", "/live", params={"type": "run.end"}, headers={"Last-Event-ID": str(last)}
            ) as answer:
                lines = answer.aiter_lines()
                async for line in lines:
                    name, _, value = line.partition(": ")
                    if name == "id":
                        last = int(value)
                    elif name == "data":
                        yield last, json.loads(value)["run"]
        await anyio.sleep(0.05)


async def test_a_pending_request_is_refused_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_WAIT_S", 0.0)
    asked, answers = anyio.Event(), list[httpx2.Response]()

    async def never(scope: Scope, *_: Any) -> None:
        if scope["type"] == "http":
            asked.set()
            await anyio.sleep_forever()

    with listening("127.0.0.1", 0, "http") as bound:
        async with (
            httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client,
            anyio.create_task_group() as tasks,
        ):

            async def ask() -> None:
                answers.append(await client.get(url_of(bound)))

            async with anyio.create_task_group() as serving:
                serving.start_soon(http_server.serve_app, never, bound)
                tasks.start_soon(ask)
                await asked.wait()
                serving.cancel_scope.cancel()
    (answer,) = answers
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "http.stopping"
