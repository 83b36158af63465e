"""Temporal: its development server over a file, and a worker without a sandbox, in the process of the client.

A worker that dies is noticed by timeouts only; they are as short as they can reasonably be.
"""

# pyright: basic, reportMissingImports=false

import asyncio
import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import PollerBehaviorAutoscaling, UnsandboxedWorkflowRunner, Worker
from workloads import HELD_S, MANY, PORTS, Marks, measure, read_arguments, until

PORT, *_ = PORTS
UP_S = 60
LOST = timedelta(seconds=2)
"""The timeout of a workflow task, and of a step."""

SILENT = timedelta(seconds=10)
"""The timeout of a heartbeat: the server cannot store those of 1,000 activities much more often."""

WORKLOAD, FOLDER = read_arguments()
MARKS = Marks(FOLDER)
RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100))
step = partial(workflow.execute_activity, start_to_close_timeout=LOST, retry_policy=RETRIES)
long_step = partial(
    workflow.execute_activity,
    start_to_close_timeout=timedelta(seconds=HELD_S),
    heartbeat_timeout=SILENT,
    retry_policy=RETRIES,
)


@activity.defn
async def nothing() -> None:
    return None


@activity.defn
async def mark() -> None:
    MARKS.mark()


@activity.defn
async def hold(run: str) -> None:
    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(SILENT.total_seconds() / 2)

    beating = asyncio.create_task(beat())
    await MARKS.hold(run)
    beating.cancel()


@workflow.defn(name="chain")
class Chain:
    @workflow.run
    async def run(self, size: int) -> None:
        for _ in range(size):
            await step(nothing)


@workflow.defn(name="wide")
class Wide:
    @workflow.run
    async def run(self, size: int) -> None:
        await asyncio.gather(*(step(nothing) for _ in range(size)))


@workflow.defn(name="marked")
class Marked:
    @workflow.run
    async def run(self, size: int) -> None:
        for _ in range(size):
            await step(mark)


@workflow.defn(name="held")
class Held:
    @workflow.run
    async def run(self, size: int) -> None:
        await step(mark)
        await long_step(hold, workflow.info().workflow_id)


def run_server() -> None:
    """Become the server; its one file is synced for each transaction."""
    server = str(Path(sys.executable).with_name("temporal"))
    options = {"port": PORT, "db-filename": FOLDER / "server.sqlite", "sqlite-pragma": "journal_mode=WAL"}
    given = [f"--{name}={value}" for name, value in options.items()]
    os.execv(server, [server, "server", "start-dev", "--headless", "--log-level=never", *given])


async def main() -> None:
    client = await until(lambda: Client.connect(f"127.0.0.1:{PORT}"), RuntimeError, UP_S)
    polling = PollerBehaviorAutoscaling(initial=10)
    worker = Worker(
        client,
        task_queue="peers",
        workflows=[Chain, Wide, Marked, Held],
        activities=[nothing, mark, hold],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=2 * MANY,
        max_concurrent_activities=2 * MANY,
        workflow_task_poller_behavior=polling,
        activity_task_poller_behavior=polling,
        max_heartbeat_throttle_interval=SILENT / 2,
        sticky_queue_schedule_to_start_timeout=LOST,
    )
    async with worker:
        if WORKLOAD == "resume":
            await asyncio.sleep(HELD_S)
        await measure(
            WORKLOAD,
            lambda kind, size, run: client.execute_workflow(kind, size, id=run, task_queue="peers", task_timeout=LOST),
        )


if WORKLOAD == "server":
    run_server()
asyncio.run(main())
