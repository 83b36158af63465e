"""The list of runs and `show` have the same status of a run, parked or not, over real messages."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef
from callboard.projections.lists.runs import RowStatus, RunRow
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations.statuses import Statuses
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service
from tests.support.flow_providers import ours
from tests.support.flows import call, cleanup, flow, mock, returned
from tests.support.service_client import WAITS, Caller

ASKS = call({"provider": ours("human"), "with": {"question": "Sure?"}})
SLEEPS = {"action": "Sleep", "for": "PT1H", "next": "done"}
TIDIES = call(mock(delay="PT1H"), middleware=[cleanup({"provider": ours("signal"), "with": {"name": "tidied"}})])
CHILD = json.dumps(flow({"s": ASKS, "done": returned()}))
WAITING: dict[RowStatus, dict[str, Any]] = {
    "waiting:human": ASKS,
    "waiting:timer": SLEEPS,
    "waiting:signal": call({"provider": ours("signal"), "with": {"name": "go"}}),
    "waiting:child": call({"provider": ours("definition"), "with": {"source": CHILD}}),
}


@pytest.fixture(params=[0.0, 3600.0], ids=["parked", "active"])
async def connection(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Connection]:
    flags = {"data_dir": tmp_path, "sync": "100ms", "park_linger_s": request.param}
    async with (
        open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection,
        open_worker(connection, env={}),
        open_service(connection),
    ):
        yield connection


async def start_step(caller: Caller, connection: Connection, step: dict[str, Any], until: str) -> str:
    """Start a flow of one step, and wait for an event of a type."""
    source = json.dumps(flow({"a": step, "done": returned()}))
    run = await caller.start(definition={"source": source}, model=None, script=None)
    await wait_for_event(connection, run, until)
    return run


async def wait_for_event(connection: Connection, run: str, event_type: str) -> None:
    async with connection.client.follow(run, event_type=event_type) as feed:
        await anext(feed)


async def test_the_list_and_the_run_have_the_same_status(connection: Connection) -> None:
    caller = Caller(connection.nc, connection.config.tenant)
    parks = not connection.config.park_linger_s
    announced = ("human.asked", "timer.set", "signal.awaited", "child.start")
    runs: dict[str, str] = {
        status: await start_step(caller, connection, step, "run.parked" if parks else event_type)
        for (status, step), event_type in zip(WAITING.items(), announced, strict=True)
    }
    runs["running"] = await caller.start(script=WAITS)
    await wait_for_event(connection, runs["running"], "model.call")
    runs["paused"] = await caller.start(script=WAITS)
    await caller.ask("tell", {"run_id": runs["paused"], "verb": "pause", "wait_s": 30})
    runs["cancelling"] = await start_step(caller, connection, TIDIES, "timer.set")
    await caller.ask("tell", {"run_id": runs["cancelling"], "verb": "cancel", "wait_s": 30})
    await wait_for_event(connection, runs["cancelling"], "run.parked" if parks else "signal.awaited")
    listed = {row["run"]: row["status"] for row in (await caller.ask("runs"))["runs"]}
    for status, run in runs.items():
        assert (status, (await caller.ask("show", {"run_id": run}))["status"], listed[run]) == (status,) * 3
        found = [row["run"] for row in (await caller.ask("runs", {"status": status}))["runs"]]
        assert run in found
        assert all(listed[one] == status for one in found)
    waiting = [row["run"] for row in (await caller.ask("runs", {"status": "waiting"}))["runs"]]
    assert set(waiting) >= {runs[status] for status in WAITING}
    assert runs["running"] not in waiting


async def test_a_page_of_a_status_is_marked_if_there_are_more(connection: Connection) -> None:
    caller = Caller(connection.nc, connection.config.tenant)
    runs = [await start_step(caller, connection, ASKS, "human.asked") for _ in range(3)]
    await caller.finished()
    page = await caller.ask("runs", {"status": "waiting:human", "limit": 2})
    assert ([row["run"] for row in page["runs"]], page["more"]) == ([runs[2], runs[1]], True)
    page = await caller.ask("runs", {"status": "waiting:human", "limit": 2, "before": runs[1]})
    assert ([row["run"] for row in page["runs"]], page["more"]) == ([runs[0]], False)
    assert (await caller.ask("runs", {"status": "waiting:signal"}))["runs"] == []


async def test_logs_of_runs_that_have_ended_are_not_read(connection: Connection) -> None:
    caller = Caller(connection.nc, connection.config.tenant)
    await caller.finished()
    rows = [msgspec.convert(row, RunRow) for row in (await caller.ask("runs"))["runs"]]

    class UnreadableLog:
        async def read(self, *_: Any) -> Any:
            raise AssertionError("read")

    log: Any = UnreadableLog()
    assert await Statuses(log).update_rows(connection.config.tenant, rows) == rows


async def test_only_new_events_of_an_active_run_are_read(connection: Connection) -> None:
    caller = Caller(connection.nc, connection.config.tenant)
    run = await caller.start(script=WAITS)
    await wait_for_event(connection, run, "model.call")
    read: list[int] = []

    class CountingLog:
        async def read(self, ref: RunRef, after: int = 0) -> list[Recorded]:
            found = await connection.log.read(ref, after)
            read.append(len(found))
            return found

    log: Any = CountingLog()
    statuses = Statuses(log, kept_max=1)
    ref = RunRef(connection.config.tenant, run)
    assert [await statuses.of(ref) for _ in range(2)] == ["running"] * 2
    await caller.ask("tell", {"run_id": run, "verb": "pause", "wait_s": 30})
    assert await statuses.of(ref) == "paused"
    assert read[0] > 3
    assert read[1:] == [0, read[2]]
    assert 0 < read[2] < read[0]
    await statuses.of(RunRef(connection.config.tenant, "other"))
    assert await statuses.of(ref) == "paused"
    assert read[-1] == read[0] + read[2]
