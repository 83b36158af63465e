"""Restate: its server in its default configuration, and a Python service, called through its HTTP ingress."""

# pyright: basic, reportMissingImports=false

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import restate
import uvloop
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from workloads import AT_ONCE, LONG, STEPS, WIDTH, chains, fan_outs, marks, read_arguments, say

INGRESS, ADMIN, NODE, SERVICE = 18080, 19070, 15122, 19080
UP_S = 60

WORKLOAD, FOLDER = read_arguments()
peers = restate.Service("peers")
mark = marks(FOLDER)


async def nothing():
    return None


async def mark_step():
    mark()


@peers.handler()
async def chain(ctx: restate.Context, request: dict) -> None:
    for _ in range(STEPS):
        await ctx.run_typed("step", nothing)


@peers.handler()
async def wide(ctx: restate.Context, request: dict) -> None:
    await restate.gather(*(ctx.run_typed("step", nothing) for _ in range(WIDTH)))


@peers.handler()
async def long(ctx: restate.Context, request: dict) -> None:
    for _ in range(LONG):
        await ctx.run_typed("step", mark_step)


app = restate.app([peers])


def server() -> subprocess.Popen:
    """Start the server; it outlives a killed service, as it does in Restate's normal use."""
    settings = {
        "RESTATE_BASE_DIR": str(FOLDER / "store"),
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{INGRESS}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ADMIN}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{NODE}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_LISTEN_MODE": "tcp",
    }
    log = (FOLDER / "server.log").open("wb")
    return subprocess.Popen(
        [os.environ["RESTATE_SERVER"], "--no-logo"], env=os.environ | settings, stdout=log, stderr=log
    )


def service() -> subprocess.Popen:
    """Start the service as a process separate from the server.

    Granian's worker process outlives it until the process group is killed, so it must not hold our standard output.
    """
    return subprocess.Popen([sys.executable, __file__, "service", str(FOLDER)], stdout=subprocess.DEVNULL)


def serve() -> None:
    """Serve the handlers with Granian, the faster of the two servers that Restate's documentation names."""
    Granian(
        "restate_runs:app",
        address="127.0.0.1",
        port=SERVICE,
        interface=Interfaces.ASGI,
        http=HTTPModes.http2,
        loop=Loops.uvloop,
        working_dir=Path(__file__).parent,
        log_enabled=False,
    ).serve()


async def until_up(asking: httpx.AsyncClient, method: str, url: str, body: dict | None = None) -> None:
    async with asyncio.timeout(UP_S):
        while True:
            try:
                answer = await asking.request(method, url, json=body)
                if answer.is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)


async def measure() -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as asking:
        await until_up(asking, "GET", f"http://127.0.0.1:{ADMIN}/health")
        await until_up(asking, "POST", f"http://127.0.0.1:{ADMIN}/deployments", {"uri": f"http://127.0.0.1:{SERVICE}"})
        await until_up(asking, "GET", f"http://127.0.0.1:{INGRESS}/restate/health")

        async def ask(handler):
            answer = await asking.post(f"http://127.0.0.1:{INGRESS}/peers/{handler}", json={})
            answer.raise_for_status()

        if WORKLOAD in AT_ONCE:
            say(await chains(AT_ONCE[WORKLOAD], lambda run: ask("chain")))
        elif WORKLOAD == "fan_out":
            say(await fan_outs(lambda run: ask("wide")))
        else:
            await ask("long")


def main() -> None:
    if WORKLOAD in ("service", "resume"):
        serve()
        return
    started = [service()] if WORKLOAD == "long" else [server(), service()]
    try:
        uvloop.run(measure())
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    if WORKLOAD == "server":
        sys.exit(server().wait())
    main()
