"""Callboard: `callboard up` in processes of its own, asked by NATS messages; each append synced before it counts."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from nats.aio.client import Client
from nats.aio.msg import Msg
from workloads import AT_ONCE, LONG, STEPS, WIDTH, asked, chains, fan_outs, say

UP_S = 60.0


def chain(steps: int, run_id: str) -> bytes:
    """A start of a workflow of so many nodes, one after the other, on a scripted model that answers at once."""
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


def fan_out(run_id: str) -> bytes:
    """A start of a flow that makes `WIDTH` calls beside each other, each an effect of its own."""
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


class Driver:
    """Starts runs by message and hears their ends by subscription."""

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


def up(folder: Path) -> subprocess.Popen[str]:
    """A server and workers over the folder; returns once they are up."""
    command = [str(Path(sys.executable).with_name("callboard")), "up", "--json", "--data-dir", str(folder / "data")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def url_of(standing: subprocess.Popen[str]) -> str:
    assert standing.stdout is not None
    return json.loads(standing.stdout.readline())["url"]


async def measure(workload: str, folder: Path) -> None:
    standing = up(folder)
    try:
        nc = Client()
        await nc.connect(url_of(standing))
        driver = Driver(nc)
        await driver.listen()
        if workload in AT_ONCE:
            say(await chains(AT_ONCE[workload], lambda run: driver.perform(run, chain(STEPS, run))))
        else:
            say(await fan_outs(lambda run: driver.perform(run, fan_out(run))))
        await nc.close()
    finally:
        standing.send_signal(signal.SIGTERM)
        standing.wait()


async def marked(folder: Path, workload: str) -> None:
    """Note each node that is entered in the folder's ``steps``, as other systems' steps do themselves.

    On ``long`` the run is started, on ``resume`` only looked at; `callboard up` is a child here, killed with us.
    """
    file = (folder / "steps").open("a", buffering=1)

    async def entered(message: Msg) -> None:
        if json.loads(message.data)["type"] == "node.enter":
            file.write("step\n")

    standing = up(folder)
    nc = Client()
    await nc.connect(url_of(standing), max_reconnect_attempts=-1, reconnect_time_wait=0)
    await nc.subscribe("cb.run.default.>", cb=entered)
    if workload == "long":
        await nc.publish("cb.start.default", chain(LONG, "long"))
    await asyncio.sleep(UP_S)


if __name__ == "__main__":
    asked_for, where = asked()
    asyncio.run(measure(asked_for, where) if asked_for in (*AT_ONCE, "fan_out") else marked(where, asked_for))
