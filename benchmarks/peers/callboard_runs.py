"""Callboard: `callboard up` as separate processes, with requests over NATS; each append is synced before it counts.

The steps are workflows in Python (`callboard_code`). With ``DECLARED`` in the environment they are the nodes of a
``workflow`` and the calls of a ``flow``. Answers of a model are requested and received over HTTP. Its own workload is
``client``: starting the runs that are killed, from a process that is not.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from workloads import HELD_S, Marks, measure, measure_tokens, read_arguments, until

from callboard.bus.nats.server.data_directory import running_url

RECONNECT_S = 0.01
UP_S = 10.0
HEARD = 5
"""Pieces of an answer after which its reader connects again."""
DECLARED = "DECLARED" in os.environ
SETTLED_S = 3.0
"""After this time all worker processes are running, so that the measurement and the kill find a complete system."""


def declared_chain(nodes: int) -> dict[str, Any]:
    """Return the start of a workflow of nodes in sequence, on a scripted model that answers at once."""
    document = {
        "id": "chain",
        "name": "Chain",
        "entry": "n0",
        "nodes": {f"n{i}": {"name": f"Node {i}", "instruction": "Count."} for i in range(nodes)},
        "edges": [{"from": f"n{i}", "to": f"n{i + 1}"} for i in range(nodes - 1)],
    }
    return {
        "definition": {"language": "workflow", "source": json.dumps(document)},
        "model": "scripted",
        "script": {"default": {"text": "ok"}},
        "options": {"max_steps": 2 * nodes},
    }


def declared_fan_out(width: int) -> dict[str, Any]:
    """Return the start of a flow that makes calls in parallel, each a separate effect."""
    call = {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"value": 1}}
    over = f"{{{{ lists.range({width}) }}}}"
    document = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "all",
        "steps": {
            "all": {"action": "Gather", "over": over, "call": call, "next": "done"},
            "done": {"action": "Return"},
        },
    }
    return {"definition": {"language": "flow", "source": json.dumps(document)}}


def start_message(kind: str, size: int, run: str) -> dict[str, Any]:
    if DECLARED:
        start = declared_fan_out(size) if kind == "wide" else declared_chain(size)
    else:
        start = {"definition": {"name": kind}, "input": {"size": size, "run": run}}
    return {**start, "run_id": run}


class Driver:
    """Starts runs by message and receives their ends by subscription."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc
        self._ends: dict[str, asyncio.Future[str]] = {}

    async def listen(self) -> None:
        await self._nc.subscribe("cb.run.default.*.*.run.end", cb=self._heard)

    async def _heard(self, message: Msg) -> None:
        run = message.subject.split(".")[3]
        if (end := self._ends.pop(run, None)) is not None:
            end.set_result(json.loads(message.data)["payload"]["status"])

    async def perform(self, kind: str, size: int, run: str) -> None:
        end = self._ends[run] = asyncio.get_running_loop().create_future()
        await self._nc.publish("cb.start.default", json.dumps(start_message(kind, size, run)).encode())
        status = await end
        assert status == "completed", status


async def drive(workload: str, url: str) -> None:
    nc = Client()
    await nc.connect(url)
    driver = Driver(nc)
    await driver.listen()
    await measure(workload, driver.perform)
    await nc.close()


async def frames(client: httpx2.AsyncClient, **query: str) -> AsyncGenerator[tuple[str, Any]]:
    """Yield the events of a live stream, each with its type; first an empty one, once it is connected."""
    async with client.stream("GET", "/live", params=query) as live:
        live.raise_for_status()
        yield "", None
        kind = ""
        async for line in live.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)


async def said_again(connect: partial[httpx2.AsyncClient], run: str) -> float:
    """Return the seconds from a new connection that only knows the run to the text so far of its answer."""
    began = time.perf_counter()
    async with connect() as client, aclosing(frames(client, topics=f"run:{run}", after="0")) as heard:
        async for kind, event in heard:
            if kind == "model.call":
                answer = (await client.get(f"/runs/{run}/partial/{event['n']}")).raise_for_status().json()
                assert answer["text"].startswith("piece 0"), answer
                return time.perf_counter() - began
    raise AssertionError("the stream has ended")


async def read_answer(connect: partial[httpx2.AsyncClient], client: httpx2.AsyncClient, run: str) -> list[float]:
    """Follow the run, start it, and read the answer to its end, with a second reader in the middle."""
    first = again = began = 0.0
    pieces = 0
    async with aclosing(frames(client, topics=f"run:{run}")) as heard, asyncio.TaskGroup() as tasks:
        async for kind, _ in heard:
            if not kind:
                began = time.perf_counter()
                tasks.create_task(client.post("/runs", json=start_message("said", 1, run)))
            elif kind == "model.delta":
                pieces += 1
                first = first or time.perf_counter() - began
                if pieces == HEARD:
                    again = await said_again(connect, run)
            elif kind == "run.end":
                break
    return [first, again]


async def read_answers(page: str) -> None:
    at = urlsplit(page)
    connect = partial(
        httpx2.AsyncClient,
        base_url=f"{at.scheme}://{at.netloc}/api/default",
        headers={"Authorization": f"Bearer {at.fragment.removeprefix('token=')}"},
        trust_env=False,
        timeout=UP_S,
    )
    async with connect() as client:
        await measure_tokens(partial(read_answer, connect, client))


def provided() -> Mapping[str, str]:
    """Return the environment in which the provider of models is that of the benchmark."""
    url = os.environ.get("PROVIDER_URL")
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"} if url else {}


def run_up(workload: str, folder: Path) -> None:
    """Run a server and workers over the folder, and send requests to them from this process."""
    env = {**os.environ, **provided(), "CALLBOARD_HTTP_LISTEN": "127.0.0.1:0"}
    with subprocess.Popen([*sys.argv[3:], str(folder / "data")], env=env, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        try:
            page = json.loads(up.stdout.readline())["page"]
            time.sleep(SETTLED_S)
            asyncio.run(read_answers(page) if workload == "tokens" else drive(workload, url_over(folder)))
        finally:
            up.send_signal(signal.SIGTERM)


async def start_runs(workload: str, folder: Path, url: str) -> None:
    """Start the runs that are killed; nodes of declared ones are marked here, as they are entered."""
    marks = Marks(folder)

    async def entered(message: Msg) -> None:
        if json.loads(message.data)["type"] == "node.enter":
            marks.mark()

    async def lost(_error: Exception) -> None:
        """Ignore the lost connection: the server is killed."""

    nc = Client()
    options: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": RECONNECT_S, "error_cb": lost}
    await nc.connect(url, **options)
    if DECLARED:
        await nc.subscribe("cb.run.default.>", cb=entered)
    await asyncio.sleep(SETTLED_S)

    async def perform(kind: str, size: int, run: str) -> None:
        start = json.dumps(start_message(kind, size, run)).encode()
        # Before the stream exists, no server answers.
        await until(lambda: nc.request("cb.start.default", start, timeout=UP_S), NoRespondersError, UP_S)

    await measure(workload, perform)
    await asyncio.sleep(HELD_S)


def url_over(folder: Path) -> str:
    """Return the URL of the server over the folder, as soon as it runs."""
    while (url := running_url(folder / "data")) is None:
        time.sleep(RECONNECT_S)
    return url


def main() -> None:
    workload, folder = read_arguments()
    if workload == "client":
        asyncio.run(start_runs(sys.argv[3], folder, url_over(folder)))
    else:
        run_up(workload, folder)


main()
