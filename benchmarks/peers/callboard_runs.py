"""Callboard: `callboard up` as separate processes, with requests over NATS; each append is synced before it counts.

The steps are workflows in Python (`callboard_code`). With ``DECLARED`` in the environment they are the nodes of a
``workflow`` and the calls of a ``flow``.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from workloads import AT_ONCE, LONG, STEPS, WIDTH, chains, fan_outs, read_arguments, say

from callboard.bus.nats.server.data_directory import running_url

RECONNECT_S = 0.01
PATIENCE_S = 180.0
UP_S = 10.0
DECLARED = "DECLARED" in os.environ
CODE = Path(__file__).with_name("callboard_code.py")
SETTLED_S = 3.0
"""After this time all worker processes are running, so that the measurement and the kill find a complete system."""


def declared_chain(steps: int, run_id: str) -> bytes:
    """Return the start of a workflow of ``steps`` nodes in sequence, on a scripted model that answers at once."""
    document = {
        "id": "chain",
        "name": "Chain",
        "entry": "n0",
        "nodes": {f"n{i}": {"name": f"Node {i}", "instruction": "Count."} for i in range(steps)},
        "edges": [{"from": f"n{i}", "to": f"n{i + 1}"} for i in range(steps - 1)],
    }
    start = {
        "definition": {"language": "workflow", "source": json.dumps(document)},
        "run_id": run_id,
        "model": "scripted",
        "script": {"default": {"text": "ok"}},
        "options": {"max_steps": 2 * steps},
    }
    return json.dumps(start).encode()


def declared_fan_out(run_id: str) -> bytes:
    """Return the start of a flow that makes `WIDTH` calls in parallel, each a separate effect."""
    call = {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"value": 1}}
    document = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "all",
        "steps": {
            "all": {
                "action": "Gather",
                "over": f"{{{{ lists.range({WIDTH}) }}}}",
                "call": call,
                "next": "done",
            },
            "done": {"action": "Return"},
        },
    }
    start = {"definition": {"language": "flow", "source": json.dumps(document)}, "run_id": run_id}
    return json.dumps(start).encode()


def chain(steps: int, run_id: str) -> bytes:
    """Return the start of ``steps`` steps in sequence."""
    if DECLARED:
        return declared_chain(steps, run_id)
    return json.dumps({"definition": {"name": "chain"}, "run_id": run_id, "input": {"steps": steps}}).encode()


def fan_out(run_id: str) -> bytes:
    """Return the start of `WIDTH` steps in parallel."""
    if DECLARED:
        return declared_fan_out(run_id)
    return json.dumps({"definition": {"name": "wide"}, "run_id": run_id, "input": {"width": WIDTH}}).encode()


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

    async def perform(self, run_id: str, start: bytes) -> None:
        end = self._ends[run_id] = asyncio.get_running_loop().create_future()
        await self._nc.publish("cb.start.default", start)
        status = await end
        assert status == "completed", status


def command(folder: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("callboard"))
    return [program, "up", "--json", "--code", str(CODE), "--data-dir", str(folder / "data")]


def measure(workload: str, folder: Path) -> None:
    """Run a server and workers over the folder, and send requests to them from this process."""
    with subprocess.Popen(command(folder), stdout=subprocess.PIPE, text=True) as standing:
        assert standing.stdout is not None
        try:
            standing.stdout.readline()
            asyncio.run(drive(workload, url_over(folder)))
        finally:
            standing.send_signal(signal.SIGTERM)


async def drive(workload: str, url: str) -> None:
    nc = Client()
    await nc.connect(url)
    driver = Driver(nc)
    await driver.listen()
    await asyncio.sleep(SETTLED_S)
    if workload in AT_ONCE:
        say(await chains(AT_ONCE[workload], lambda run: driver.perform(run, chain(STEPS, run))))
    else:
        say(await fan_outs(lambda run: driver.perform(run, fan_out(run))))
    await nc.close()


async def watch(folder: Path, url: str) -> None:
    """Start the long run, and add a line to the folder's ``steps`` for each step that begins.

    In other systems the steps do this themselves; here, this process listens, which is not killed.
    """
    file = (folder / "steps").open("a", buffering=1)

    began = "node.enter" if DECLARED else "effect.call"

    async def entered(message: Msg) -> None:
        if json.loads(message.data)["type"] == began:
            file.write("step\n")

    async def lost(_error: Exception) -> None:
        """Ignore the lost connection: the server is killed."""

    nc = Client()
    options: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": RECONNECT_S, "error_cb": lost}
    await nc.connect(url, **options)
    await nc.subscribe("cb.run.default.>", cb=entered)
    await asyncio.sleep(SETTLED_S)
    while True:
        # Repeat until the stream exists and accepts the start.
        try:
            await nc.request("cb.start.default", chain(LONG, "long"), timeout=UP_S)
            break
        except NoRespondersError:
            await asyncio.sleep(RECONNECT_S)
    await asyncio.sleep(PATIENCE_S)


def url_over(folder: Path) -> str:
    """Return the URL of the server over the folder, as soon as it runs."""
    while (url := running_url(folder / "data")) is None:
        time.sleep(RECONNECT_S)
    return url


def main() -> None:
    workload, folder = read_arguments()
    if workload == "server":
        asyncio.run(watch(folder, url_over(folder)))
    else:
        measure(workload, folder)


main()
