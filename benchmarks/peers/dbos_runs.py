"""DBOS: its system database in PostgreSQL, if its URL is in the environment, and otherwise in SQLite."""

# pyright: basic, reportMissingImports=false

import asyncio
import logging
import os
import sqlite3

from dbos import DBOS, SetWorkflowID
from workloads import HELD_S, Marks, measure, read_arguments

WORKLOAD, FOLDER = read_arguments()
FILE = FOLDER / "system.sqlite"
MARKS = Marks(FOLDER)
POSTGRES = os.environ.get("POSTGRES_URL")
if POSTGRES is None:
    # One sync for a commit instead of several. The file keeps this mode.
    sqlite3.connect(FILE).execute("PRAGMA journal_mode=WAL")
DBOS(
    config={
        "name": "peers",
        "system_database_url": POSTGRES.replace(":", "+psycopg:", 1) if POSTGRES else f"sqlite:///{FILE}",
        "run_admin_server": False,
        "log_level": "ERROR",
        "application_version": "1",
    }
)


@DBOS.step()
async def nothing():
    return None


@DBOS.step()
async def mark():
    MARKS.mark()


@DBOS.step()
async def hold(run):
    await MARKS.hold(run)


@DBOS.workflow()
async def chain(size, run):
    for _ in range(size):
        await nothing()


@DBOS.workflow()
async def wide(size, run):
    await asyncio.gather(*(nothing() for _ in range(size)))


@DBOS.workflow()
async def marked(size, run):
    for _ in range(size):
        await mark()


@DBOS.workflow()
async def held(size, run):
    await mark()
    await hold(run)


KINDS = {"chain": chain, "wide": wide, "marked": marked, "held": held}


async def perform(kind, size, run):
    with SetWorkflowID(run):
        handle = await DBOS.start_workflow_async(KINDS[kind], size, run)
    return await handle.get_result()


async def main():
    logging.disable(logging.ERROR)
    DBOS.launch()
    if WORKLOAD == "resume":
        await asyncio.sleep(HELD_S)
    else:
        await measure(WORKLOAD, perform)


asyncio.run(main())
