"""Hostile starts: each ends with an error code, and none blocks the worker's loop for long."""

import asyncio
import time
from pathlib import Path

import anyio
import pytest

from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.flows import flow, returned
from tests.support.hostile_starts import CORPUS, GROUPS, Hostile, start, what_becomes

HELD_S_MAX = 0.25
"""The maximum time that the loop is blocked, in processor time of its thread, on a machine as fast as `COUNTED_S`."""

COUNTED = 1_000_000
COUNTED_S = 0.025
"""The processor time of counting to `COUNTED` on that machine."""


class LoopWatch:
    """Measures the longest time that the loop is blocked, in processor time of its thread, which other processes do not
    change. A test divides it by `slowness`."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.005)
            self.longest_s = max(self.longest_s, time.thread_time() - before)

    @staticmethod
    def slowness() -> float:
        """Return how many times slower than `COUNTED_S` this thread counts now."""
        before = time.thread_time()
        for _ in range(COUNTED):
            pass
        return max(1.0, (time.thread_time() - before) / COUNTED_S)


def test_the_corpus_of_hostile_starts_is_complete() -> None:
    assert len(CORPUS) == sum(map(len, GROUPS.values())) >= 60


@pytest.mark.parametrize("group", GROUPS)
async def test_hostile_starts_end_with_a_code_and_do_not_block_the_loop(tmp_path: Path, group: str) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms", "tenant": "acme"}, env={}, cwd=tmp_path)
    became, held = dict[str, str](), dict[str, float]()
    async with (
        open_connection(config, "test") as connection,
        open_worker(connection, env={}),
        anyio.create_task_group() as tasks,
    ):
        for name, hostile in GROUPS[group].items():
            holds = LoopWatch()
            async with anyio.create_task_group() as watching:
                watching.start_soon(holds.watch)
                became[name] = await what_becomes(connection, hostile)
                watching.cancel_scope.cancel()
            # Only a long time is corrected by the speed of the machine.
            held[name] = holds.longest_s
            if holds.longest_s > HELD_S_MAX:
                held[name] /= max(LoopWatch.slowness() for _ in range(3))
        assert await what_becomes(connection, Hostile("", lambda: start(flow({"r": returned(1)})))) == ""
        tasks.cancel_scope.cancel()
    assert became == {name: hostile.ends for name, hostile in GROUPS[group].items()}
    assert {name: held_s for name, held_s in held.items() if held_s > HELD_S_MAX} == {}
