"""Prefect: its server over PostgreSQL, and flows in the process of the client, whose tasks store their results.

A task is done when its result is in a file, which is not synced; the server hears of it afterwards.
"""

# pyright: basic, reportMissingImports=false

import asyncio
import os
import sys
from pathlib import Path

from workloads import PORTS, Marks, measure, read_arguments, until

WORKLOAD, FOLDER = read_arguments()
MARKS = Marks(FOLDER)
PORT, *_ = PORTS
UP_S = 120
SETTINGS = {
    "HOME": str(FOLDER),
    "API_URL": f"http://127.0.0.1:{PORT}/api",
    "API_DATABASE_CONNECTION_URL": os.environ["POSTGRES_URL"].replace(":", "+asyncpg:", 1),
    "SERVER_ANALYTICS_ENABLED": "false",
    "SERVER_UI_ENABLED": "false",
    "LOGGING_LEVEL": "CRITICAL",
    "LOGGING_TO_API_ENABLED": "false",
    "RESULTS_PERSIST_BY_DEFAULT": "true",
}
os.environ |= {f"PREFECT_{name}": value for name, value in SETTINGS.items()}
if WORKLOAD == "server":
    server = str(Path(sys.executable).with_name("prefect"))
    os.execv(server, [server, "server", "start", "--host", "127.0.0.1", "--port", str(PORT)])

import httpx  # noqa: E402
from prefect import flow, task  # noqa: E402
from prefect.cache_policies import INPUTS  # noqa: E402
from prefect.context import AsyncClientContext  # noqa: E402


@task(cache_policy=INPUTS)
async def nothing(run, number):
    return None


@task(cache_policy=INPUTS)
async def mark(run, number):
    MARKS.mark()


@task(cache_policy=INPUTS)
async def hold(run):
    await MARKS.hold(run)


@flow
async def chain(size, run):
    for number in range(size):
        await nothing(run, number)


@flow
async def wide(size, run):
    await asyncio.gather(*(nothing(run, number) for number in range(size)))


@flow
async def marked(size, run):
    for number in range(size):
        await mark(run, number)


@flow
async def held(size, run):
    await mark(run, 0)
    await hold(run)


KINDS = {"chain": chain, "wide": wide, "marked": marked, "held": held}


async def main():
    async with httpx.AsyncClient() as asking:

        async def ready():
            (await asking.get(f"http://127.0.0.1:{PORT}/api/health")).raise_for_status()

        await until(ready, httpx.HTTPError, UP_S)
    # Who starts a killed flow again gets the results of its tasks from the cache.
    workload = sys.argv[3] if WORKLOAD == "resume" else WORKLOAD
    # All flows share one client of the server; by default each opens its own.
    async with AsyncClientContext.get_or_create():
        await measure(workload, lambda kind, size, run: KINDS[kind](size, run))


asyncio.run(main())
