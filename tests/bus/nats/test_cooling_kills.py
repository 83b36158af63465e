"""Moves of runs to cold storage and back that are killed at every step."""

from pathlib import Path
from typing import Any

import pytest

from callboard.bus.nats import cooling
from callboard.bus.nats.cooling import NotCold, cold_runs, compact, cool_runs, merge, warm_run
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.segments import (
    SegmentStore,
)
from callboard.runtime.client.client import Client
from callboard.service.files.event_files import store
from callboard.service.operations.removal import purge_run
from tests.support.cold_runs import (
    LARGE,
    TENANT,
    Killed,
    check_runs,
    count_events_in_stream,
    open_cold_store,
    read,
    ref,
    run_log,
)
from tests.support.cold_runs import objects as objects  # fixtures
from tests.support.cold_runs import segments as segments

# -- killed at every step ----------------------------------------------------------------------------------------------


class Steps:
    """Counts what a move does to the outside, and kills it before or after one of these steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: JetStreamLog, store: SegmentStore) -> None:
        self.count, self.kill_at = 0, -1
        self._log = log
        for owner, name in (
            (JetStreamLog, "publish"),
            (type(store), "put"),
            (type(store), "delete"),
            (cooling, "erase_start"),
            (cooling, "erase_all"),
            (cooling, "append"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Any) -> Any:
        async def counted(*args: Any, **more: Any) -> Any:
            self._step()
            found = await call(*args, **more)
            self._step()
            return found

        return counted

    def _step(self) -> None:
        self.count += 1
        if self.count == self.kill_at:
            raise Killed


@pytest.mark.parametrize(
    ("segments", "way"),
    [*(("folder", way) for way in ("cool", "warm", "compact", "merge")), ("objects", "compact")],
    indirect=["segments"],
)
async def test_a_move_may_be_killed_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: SegmentStore, way: str
) -> None:
    """No run is lost, doubled, or unreadable in between; the next attempt completes the move."""
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    monkeypatch.setattr(cooling, "MERGED_TOGETHER", 2)
    async with open_cold_store(tmp_path, segments=segments) as (connection, folder):
        log = connection.log
        steps = Steps(monkeypatch, log, folder)

        async def move(runs: list[str]) -> None:
            match way:
                case "cool":
                    await cool_runs(log, folder, [ref(run) for run in runs])
                case "warm":
                    for run in runs:
                        try:
                            await warm_run(log, ref(run))
                        except NotCold:
                            continue
                case "merge":
                    await merge(log, folder)
                case _:
                    await compact(log, folder)

        kill_at, done = 0, False
        while not done:
            kill_at += 1
            steps.kill_at = -1
            runs = [f"{one}-{kill_at}" for one in ("az" if way in ("compact", "merge") else "a")]
            await store(log, TENANT, {run: run_log(run, {"text": LARGE + run}).events for run in runs})
            before = {run: [one[1:] for one in await read(log, run)] for run in runs[: 1 if way == "compact" else 2]}
            if way == "merge":
                for run in runs:
                    await cool_runs(log, folder, [ref(run)])
            elif way != "cool":
                await cool_runs(log, folder, [ref(run) for run in runs])
            if way == "compact":
                await purge_run(Client(log, TENANT), runs[1], PurgeMark())

            steps.count, steps.kill_at = 0, kill_at
            try:
                await move(runs)
                done = True
            except Killed:
                pass
            steps.kill_at = -1
            await check_runs(log, folder, before)
            await move(runs)
            await check_runs(log, folder, before)
            if way in ("compact", "merge"):
                there = [one.run async for one, _end in cold_runs(log, TENANT)]
                assert [there.count(run) for run in before] == [1] * len(before)
            left = [len(one) if way == "warm" else 1 for one in before.values()]
            assert [await count_events_in_stream(log, run) for run in before] == left
        assert kill_at > 6
