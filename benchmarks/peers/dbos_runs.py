"""DBOS with its SQLite system database."""

# pyright: basic, reportMissingImports=false

import asyncio
import logging

from dbos import DBOS, SetWorkflowID
from workloads import AT_ONCE, LONG, STEPS, WIDTH, chains, fan_outs, marks, read_arguments, say

WORKLOAD, FOLDER = read_arguments()
DBOS(
    config={
        "name": "peers",
        "system_database_url": f"sqlite:///{FOLDER / 'system.sqlite'}",
        "run_admin_server": False,
        "log_level": "ERROR",
        "application_version": "1",
    }
)
mark = marks(FOLDER)


@DBOS.step()
async def nothing():
    return None


@DBOS.step()
async def mark_step():
    mark()


@DBOS.workflow()
async def chain():
    for _ in range(STEPS):
        await nothing()


@DBOS.workflow()
async def wide():
    await asyncio.gather(*(nothing() for _ in range(WIDTH)))


@DBOS.workflow()
async def long():
    for _ in range(LONG):
        await mark_step()


async def perform(workflow, run):
    with SetWorkflowID(run):
        handle = await DBOS.start_workflow_async(workflow)
    return await handle.get_result(polling_interval_sec=0.01)


async def main():
    logging.disable(logging.ERROR)
    DBOS.launch()
    if WORKLOAD in AT_ONCE:
        say(await chains(AT_ONCE[WORKLOAD], lambda run: perform(chain, run)))
    elif WORKLOAD == "fan_out":
        say(await fan_outs(lambda run: perform(wide, run)))
    elif WORKLOAD == "long":
        await perform(long, "long")
    else:
        await asyncio.sleep(60)


asyncio.run(main())
