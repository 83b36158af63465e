"""Hostile starts: how long each keeps the loop of a worker, and how much later other runs end beside it."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median

import anyio

from benchmarks.staffed import staffed_connection
from callboard.runtime.api.connection import Connection
from tests.flows import call, flow, mock, returned
from tests.hostile import CORPUS, end_of, say, start, what_becomes

TICK_S = 0.005
"""How often the loop is looked at."""

BESIDE = flow({"a": call(mock(value=1), "b"), "b": call(mock(value=2), "r"), "r": returned()})
"""What runs beside them: a short flow, again and again."""


class Meter:
    """Looks at the loop all the time: ``worst_s`` is the longest that it was kept since it was last asked.

    What counts is the time that the loop's own thread worked, whatever else the machine does meanwhile.
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
        """Start the short flow, and note how long it takes to its end; then again."""
        count = 0
        while True:
            run, count = f"beside-{count}", count + 1
            before = time.perf_counter()
            await say(connection, start(BESIDE, run_id=run))
            await end_of(connection, run)
            self.beside_s.append(time.perf_counter() - before)

    def reading(self) -> tuple[float, list[float]]:
        """Return what has been seen since this was last asked."""
        found = self.worst_s, self.beside_s
        self.worst_s, self.beside_s = 0.0, []
        return found


@asynccontextmanager
async def measured() -> AsyncGenerator[tuple[Connection, Meter]]:
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
    async with measured() as (connection, meter):
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
