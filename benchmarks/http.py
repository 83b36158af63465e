"""HTTP next to busy runs: how soon `callboard up`, in its default configuration, acknowledges starts and answers."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

import anyio
import httpx2

from benchmarks.footprint import CALLBOARD
from benchmarks.staffed import chain, start_message
from callboard.runtime.client.client import new_run_id

BUSY = 50
TURN_MS = 250
"""How long a model takes in a busy run: faster than any real model."""

NODES = 1_000
"""Nodes of a busy run: more than it completes during the benchmark."""

BUSY_ONE = "busy-0"

REQUESTS = 200
ASKERS = (1, 4)
"""Numbers of simultaneous clients."""

AT_MOST_MS = 100

PATIENCE_S = 60.0


async def report() -> None:
    print(f"HTTP beside {BUSY} busy runs")
    with _standing() as client:
        async with client:
            await _begin_busy(client)
            for askers in ASKERS:
                print(f"  {askers} asking at once" if askers > 1 else "  one asking after the other")
                await _measure(askers, "a start", lambda: client.post("/runs", json=start_message(1, new_run_id())))
                for name, path in _QUERIES.items():
                    await _measure(askers, name, lambda path=path: client.get(path))
            rows = (await client.get("/runs", params={"status": "running"})).json()["runs"]
            assert len([row for row in rows if row["run"].startswith("busy-")]) == BUSY, "they did not keep busy"


_QUERIES = {
    "the list of runs": "/runs?limit=50",
    "a run": f"/runs/{BUSY_ONE}",
    "its first events": f"/runs/{BUSY_ONE}/events?limit=100",
    "the questions": "/questions",
}


@contextmanager
def _standing() -> Generator[httpx2.AsyncClient]:
    """Run `callboard up` over a fresh folder; yield a client of its HTTP interface."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "CALLBOARD_HTTP_LISTEN": "127.0.0.1:0", "CALLBOARD_LOG_LEVEL": "error"}
        command = [CALLBOARD, "up", "--json", "--data-dir", folder, "--allow-scripts"]
        with subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            page = urlsplit(json.loads(process.stdout.readline())["page"])
            token = page.fragment.removeprefix("token=")
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{page.scheme}://{page.netloc}/api/default"
            yield httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False)
            process.terminate()
            process.wait()


async def _begin_busy(client: httpx2.AsyncClient) -> None:
    """Start the busy runs, and wait until all of them wait for a model."""
    busy = {
        "definition": {"language": "workflow", "source": chain(NODES)},
        "model": "scripted",
        "script": {"default": {"text": "ok", "delay_ms": TURN_MS}},
    }
    for number in range(BUSY):
        answer = await client.post("/runs", json={**busy, "run_id": f"busy-{number}"})
        assert answer.status_code == 202, answer.text
    async with client.stream("GET", "/live", params={"type": "model.call", "after": 0}) as calls:
        waiting = {f"busy-{number}" for number in range(BUSY)}
        async for line in calls.aiter_lines():
            if line.startswith("data: "):
                waiting.discard(json.loads(line.removeprefix("data: "))["run"])
            if not waiting:
                return


async def _measure(askers: int, name: str, ask: Callable[[], Awaitable[httpx2.Response]]) -> None:
    taken: list[float] = []
    numbers = iter(range(REQUESTS))

    async def asker() -> None:
        for _number in numbers:
            began = time.perf_counter()
            answer = await ask()
            taken.append((time.perf_counter() - began) * 1000)
            assert answer.status_code in (200, 202), answer.text

    async with anyio.create_task_group() as tasks:
        for _ in range(askers):
            tasks.start_soon(asker)
    taken.sort()
    p95 = taken[len(taken) * 95 // 100]
    said = "" if p95 <= AT_MOST_MS else f"  more than {AT_MOST_MS} ms"
    print(f"    {name:<20} median {taken[len(taken) // 2]:>6.1f} ms   p95 {p95:>6.1f} ms{said}")
