"""Restate: its server in its default configuration, and a Python service, called through its HTTP ingress."""

# pyright: basic, reportMissingImports=false

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import restate
import uvloop
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from workloads import PORTS, Marks, measure, read_arguments, until

INGRESS, ADMIN, NODE, SERVICE = PORTS
UP_S = 60

WORKLOAD, FOLDER = read_arguments()
MARKS = Marks(FOLDER)
peers = restate.Service("peers")


async def nothing():
    return None


async def mark():
    MARKS.mark()


@peers.handler()
async def chain(ctx: restate.Context, request: dict) -> None:
    for _ in range(request["size"]):
        await ctx.run_typed("step", nothing)


@peers.handler()
async def wide(ctx: restate.Context, request: dict) -> None:
    await restate.gather(*(ctx.run_typed("step", nothing) for _ in range(request["size"])))


@peers.handler()
async def marked(ctx: restate.Context, request: dict) -> None:
    for _ in range(request["size"]):
        await ctx.run_typed("step", mark)


@peers.handler()
async def held(ctx: restate.Context, request: dict) -> None:
    await ctx.run_typed("step", mark)
    await ctx.run_typed("step", partial(MARKS.hold, request["run"]))


app = restate.app([peers])


def run_server() -> None:
    """Become the server; it outlives a killed service, as it does in Restate's normal use."""
    settings = {
        "RESTATE_BASE_DIR": str(FOLDER / "store"),
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{INGRESS}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ADMIN}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{NODE}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_LISTEN_MODE": "tcp",
    }
    server = os.environ["RESTATE_SERVER"]
    os.execve(server, [server, "--no-logo"], os.environ | settings)


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


async def send_requests() -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as asking:

        async def ask(method: str, port: int, path: str, body: dict | None = None) -> None:
            answer = await asking.request(method, f"http://127.0.0.1:{port}/{path}", json=body)
            answer.raise_for_status()

        deployment = {"uri": f"http://127.0.0.1:{SERVICE}"}
        await until(partial(ask, "POST", ADMIN, "deployments", deployment), httpx.HTTPError, UP_S)
        await until(partial(ask, "GET", INGRESS, "restate/health"), httpx.HTTPError, UP_S)

        async def perform(kind: str, size: int, run: str) -> None:
            await ask("POST", INGRESS, f"peers/{kind}", {"size": size, "run": run})

        await measure(WORKLOAD, perform)


def main() -> None:
    if WORKLOAD == "server":
        run_server()
    if WORKLOAD in ("service", "resume"):
        serve()
        return
    # Granian's worker process outlives it until the process group is killed, so it must not hold our standard output.
    command = [sys.executable, __file__, "service", str(FOLDER)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as service:
        try:
            uvloop.run(send_requests())
        finally:
            service.kill()


if __name__ == "__main__":
    main()
