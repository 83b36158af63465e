"""Hostile starts: how long each blocks the event loop of a worker, and how much it delays other runs."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median

import anyio

from benchmarks.staffed import staffed_connection
from callboard.runtime.client.connection import Connection
from tests.support.flows import call, flow, mock, returned
from tests.support.hostile_starts import CORPUS, end_of, say, start, what_becomes

TICK_S = 0.005
"""How often the loop is checked."""

BESIDE = flow({"a": call(mock(value=1), "b"), "b": call(mock(value=2), "r"), "r": returned()})
"""The run that is measured next to them: a short flow, again and again."""


class Meter:
    """Watches the event loop: ``worst_s`` is the longest time that it was blocked since the last reading.

    Only the processor time of the loop's own thread counts, so that other load on the machine has no effect.
    """

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.beside_s: list[float] = []

    async def watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(TICK_S)
            self.worst_s = max(self.worst_s, time.thread_time() - before)

    async def run_beside(self, connection: Connection) -> None:
        """Start the short flow repeatedly, and record the duration of each run."""
        count = 0
        while True:
            run, count = f"beside-{count}", count + 1
            before = time.perf_counter()
            await say(connection, start(BESIDE, run_id=run))
            await end_of(connection, run)
            self.beside_s.append(time.perf_counter() - before)

    def reading(self) -> tuple[float, list[float]]:
        """Return the measurements since the last reading."""
        found = self.worst_s, self.beside_s
        self.worst_s, self.beside_s = 0.0, []
        return found


@asynccontextmanager
async def open_measured() -> AsyncGenerator[tuple[Connection, Meter]]:
    async with staffed_connection("100ms") as connection, anyio.create_task_group() as tasks:
        meter = Meter()
        tasks.start_soon(meter.watch)
        tasks.start_soon(meter.run_beside, connection)
        await asyncio.sleep(2.0)
        yield connection, meter
        tasks.cancel_scope.cancel()


async def report(names: list[str] | None = None) -> None:
    print(f"{'hostile start':<52} {'ends as':<34} {'took':>8} {'loop kept':>10} {'others late':>12}")
    worst, late = 0.0, 0.0
    async with open_measured() as (connection, meter):
        usual = median(meter.reading()[1])
        for name in names or CORPUS:
            before = time.perf_counter()
            became = await what_becomes(connection, CORPUS[name])
            took = time.perf_counter() - before
            await asyncio.sleep(0.2)
            kept, beside = meter.reading()
            delay = max(0.0, max(beside, default=0.0) - usual)
            worst, late = max(worst, kept), max(late, delay)
            figures = f"{took:>6.2f} s {kept * 1e3:>7.0f} ms {delay * 1e3:>9.0f} ms"
            print(f"{name[:52]:<52} {became or 'completes':<34} {figures}")
    print(f"{len(names or CORPUS)} starts; a run beside them takes {usual * 1e3:.0f} ms;", end=" ")
    print(f"the loop was kept for at most {worst * 1e3:.0f} ms, others were at most {late * 1e3:.0f} ms late")
