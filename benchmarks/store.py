"""A full store: how much memory parked runs take in a worker, and how much finished runs delay the next start."""

import gc
import os
import time

import anyio

from benchmarks.footprint import resident_mb
from benchmarks.staffed import fresh_deployment, staffed_connection, start_message
from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.subjects import RunRef
from callboard.lib.canonical_json import canonical
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.first_events import accepted_event
from callboard.runtime.admission.start_message import read_start
from callboard.runtime.client.connection import Connection
from callboard.runtime.run.log import RunLog
from callboard.service.worker.bootstrap import open_worker

PARKED = 1_000
WARM = 1_000
"""Runs parked before the measurement, so that caches and the allocator have their working size."""
FINISHED = 100_000
WRITERS = 200
STARTS = 40


async def report() -> None:
    print("A full store")
    await measure_parked()
    await measure_crowded()


async def measure_parked() -> None:
    """Park runs at a breakpoint and measure the memory of this process, which is both worker and client."""
    async with staffed_connection("100ms", park_linger_s=0) as connection:
        await _park(connection, WARM, "warm")
        gc.collect()
        before = resident_mb(os.getpid())
        await _park(connection, PARKED, "parked")
        gc.collect()
        print(f"  {PARKED} parked runs                 {resident_mb(os.getpid()) - before:>+7.1f} MB")


async def _park(connection: Connection, runs: int, tag: str) -> None:
    left = {f"{tag}-{i}" for i in range(runs)}
    limiter = anyio.CapacityLimiter(50)

    async def start(run_id: str) -> None:
        async with limiter:
            await connection.client.start(start_message(1, run_id) | {"breakpoints": ["n0"]})

    async with connection.client.follow(event_type="run.parked", after=None) as parkings:
        async with anyio.create_task_group() as tasks:
            for run_id in left:
                tasks.start_soon(start, run_id)
        async for recorded in parkings:
            left.discard(recorded.ref.run)
            if not left:
                return


async def measure_crowded() -> None:
    """Compare the time from a start to its ``run.end`` in an empty store and in one with many finished runs."""
    async with fresh_deployment("100ms") as connection:
        async with open_worker(connection, {}):
            empty = await _start_s(connection, "empty")
        await _finish(connection)
        async with open_worker(connection, {}):
            full = await _start_s(connection, "full")
        print(f"  a run, empty store               {empty * 1000:>7.1f} ms")
        print(f"  a run beside {FINISHED:,} finished    {full * 1000:>7.1f} ms ({full / empty - 1:+.0%})")


async def _start_s(connection: Connection, tag: str) -> float:
    """Return the median seconds from a start to the end of a run of one node."""
    taken: list[float] = []
    async with connection.client.follow(event_type="run.end", after=None) as ends:
        for i in range(STARTS):
            began = time.perf_counter()
            await connection.client.start(start_message(1, f"{tag}-{i}"))
            async for recorded in ends:
                if recorded.ref.run == f"{tag}-{i}":
                    break
            taken.append(time.perf_counter() - began)
    return sorted(taken)[STARTS // 2]


async def _finish(connection: Connection) -> None:
    """Write the logs of many finished runs."""
    start = read_start(canonical(start_message(1, "finished")))
    assert isinstance(start, StartRun)
    plan = Definitions().plan(start.definition, start)
    assert not isinstance(plan, list)
    ids = iter(range(FINISHED))

    async def write() -> None:
        for i in ids:
            ref = RunRef(connection.config.tenant, f"finished-{i}")
            log = RunLog(connection.log, ref, writer="benchmark")
            log.definition = "chain-1"
            log.state(accepted_event(start, plan, ref))
            log.state(ev.RunClaimed(worker="benchmark", epoch=1))
            log.state(ev.RunStart(workflow="chain-1"))
            log.state(ev.RunEnd("completed", {"summary": "ok"}))
            while log.queue:
                await log.append_queued()

    async with anyio.create_task_group() as tasks:
        for _ in range(WRITERS):
            tasks.start_soon(write)
