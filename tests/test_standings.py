"""The list of runs says what `show` says, whatever a run waits for, parked or not: over real messages."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard.projections.runs import RowStatus, RunRow
from callboard.runtime.bootstrap import open_worker
from callboard.runtime.config import load
from callboard.runtime.house import House, open_house
from callboard.runtime.service import open_service
from callboard.runtime.standings import chosen, matches
from tests.flow_providers import ours
from tests.flows import call, cleanup, flow, mock, returned
from tests.test_service import WAITS, Caller

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
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    flags = {"data_dir": tmp_path, "sync": "100ms", "park_linger_s": request.param}
    async with (
        open_house(load(flags, env={}, cwd=tmp_path), "test") as house,
        open_worker(house, env={}),
        open_service(house),
    ):
        yield house


async def begun(caller: Caller, house: House, step: dict[str, Any], until: str) -> str:
    """Start a flow of one step, and wait until an event of a type."""
    source = json.dumps(flow({"a": step, "done": returned()}))
    run = await caller.start(definition={"source": source}, model=None, script=None)
    await heard(house, run, until)
    return run


async def heard(house: House, run: str, event_type: str) -> None:
    async with house.client.follow(run, event_type=event_type) as feed:
        await anext(feed)


async def test_the_list_and_the_run_use_the_same_words(house: House) -> None:
    caller = Caller(house.nc, house.config.tenant)
    parks = not house.config.park_linger_s
    announced = ("human.asked", "timer.set", "signal.awaited", "child.start")
    runs: dict[str, str] = {
        status: await begun(caller, house, step, "run.parked" if parks else event_type)
        for (status, step), event_type in zip(WAITING.items(), announced, strict=True)
    }
    runs["running"] = await caller.start(script=WAITS)
    await heard(house, runs["running"], "model.call")
    runs["paused"] = await caller.start(script=WAITS)
    await caller.ask("tell", {"run_id": runs["paused"], "verb": "pause", "wait_s": 30})
    runs["cancelling"] = await begun(caller, house, TIDIES, "timer.set")
    await caller.ask("tell", {"run_id": runs["cancelling"], "verb": "cancel", "wait_s": 30})
    await heard(house, runs["cancelling"], "run.parked" if parks else "signal.awaited")
    listed = {row["run"]: row["status"] for row in (await caller.ask("runs"))["runs"]}
    for status, run in runs.items():
        assert (status, (await caller.ask("show", {"run_id": run}))["status"], listed[run]) == (status,) * 3
        found = [row["run"] for row in (await caller.ask("runs", {"status": status}))["runs"]]
        assert run in found
        assert all(listed[one] == status for one in found)
    waiting = [row["run"] for row in (await caller.ask("runs", {"status": "waiting"}))["runs"]]
    assert set(waiting) >= {runs[status] for status in WAITING}
    assert runs["running"] not in waiting


async def test_a_page_of_a_status_says_whether_there_are_more(house: House) -> None:
    caller = Caller(house.nc, house.config.tenant)
    runs = [await begun(caller, house, ASKS, "human.asked") for _ in range(3)]
    await caller.finished()
    page = await caller.ask("runs", {"status": "waiting:human", "limit": 2})
    assert ([row["run"] for row in page["runs"]], page["more"]) == ([runs[2], runs[1]], True)
    page = await caller.ask("runs", {"status": "waiting:human", "limit": 2, "before": runs[1]})
    assert ([row["run"] for row in page["runs"]], page["more"]) == ([runs[0]], False)
    assert (await caller.ask("runs", {"status": "waiting:signal"}))["runs"] == []


async def test_runs_that_are_over_are_not_read(house: House) -> None:
    await Caller(house.nc, house.config.tenant).finished()
    rows: list[RunRow] = [row for row in await _rows(house) for _ in range(3)]

    class Unread:
        async def read(self, *_: Any) -> Any:
            raise AssertionError("read")

    log: Any = Unread()
    assert await chosen(log, house.config.tenant, rows, None, 2) == (rows[:2], 1)
    assert await chosen(log, house.config.tenant, rows, "waiting", 2) == ([], 0)
    assert await chosen(log, house.config.tenant, rows, "completed", 5) == (rows, 0)


async def _rows(house: House) -> list[RunRow]:
    from callboard.runtime.cli.listing import run_rows

    return await run_rows(house.log, house.config.tenant)


def test_a_status_is_of_a_kind() -> None:
    assert matches("waiting", "waiting:human")
    assert not matches("waiting:human", "waiting:timer")
    assert not matches("wait", "waiting:timer")
    assert matches(None, "failed")
