"""Budgets of tenants and definitions: windows, sums, refused starts and paused runs."""

import datetime as dt
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

from callboard.bus.effects import Usage
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import ModelResult
from callboard.bus.prices import Prices, read_prices
from callboard.runtime.budgets.allowances import Allowance, Allowances, window
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service
from tests.support.event_logs import Log
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.workflows import document

PRICES = Prices(read_prices({"x": 1})[0])
NOW = dt.datetime(2026, 11, 20, 12, 30, tzinfo=dt.UTC)


def add_turn(log: Log, tokens: int, model: str = "x") -> None:
    log.add(ModelResult(usage=Usage(tokens, 0), model=model), "a", 1, 1, f"turn.{len(log.events)}")


def test_windows_begin_at_calendar_hours_days_and_months_in_utc() -> None:
    at = dt.datetime(2026, 11, 1, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert [window(per, at).isoformat()[:13] for per in ("hour", "day", "month")] == [
        *("2026-10-31T23", "2026-10-31T00", "2026-10-01T00"),
    ]


def test_usage_counts_for_the_tenant_and_for_the_definition() -> None:
    given = {
        "acme": Allowance(per="month", usd=0.001),
        "acme/cake": Allowance(tokens=300, then="pause"),
        "other": Allowance(turns=1),
    }
    found = Allowances(given, PRICES)
    log = Log("r", "cake")
    for _ in range(3):
        add_turn(log, 100)
    for event in log.events:
        found.take("acme", event)
    at = log.events[-1].time
    [cake] = found.exhausted_allowances("acme", "cake", at)
    assert (cake.name, cake.sums, cake.pauses) == ("acme/cake", "300 of 300 tokens per day", True)
    assert cake.until == window("day", at) + dt.timedelta(days=1)
    assert found.exhausted_allowances("acme", "bread", at) == []
    assert found.exhausted_allowances("other", "cake", at) == []
    assert found.exhausted_allowances("acme", "cake", at + dt.timedelta(days=1)) == [], "a new day"
    bread = Log("s", "bread")
    add_turn(bread, 700)
    found.take("acme", bread.events[0])
    [tenant] = found.exhausted_allowances("acme", "bread", at)
    assert tenant.sums == "$0.0010 of $0.001 per month"


@pytest.mark.parametrize(
    "wrong",
    [
        *("[]", '{"a": {"per": "week"}}', '{"a": {"usd": 0}}', '{"a": {"coins": 3}}'),
        *('{"a": {}}', '{"a": {"per": "day", "then": "pause"}}', '{"a": {"tokens": "5"}}', '{"a": {"turns": true}}'),
        *(f'{{"{name}": {{"usd": 1}}}}' for name in ("", "/", "a/", "/b", "a//b", "a/b/c", " a", "a/ b", "x" * 200)),
    ],
)
def test_an_invalid_budget_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(env={"CALLBOARD_BUDGETS": wrong}, cwd=tmp_path)
    assert "budgets" in str(caught.value.problems[0])


@asynccontextmanager
async def deployment(home: Path, **budgets: Any) -> AsyncGenerator[Caller]:
    flags = {"data_dir": home, "sync": "100ms", "budgets": budgets}
    async with (
        open_connection(load(flags, env={}, cwd=home), "test") as connection,
        open_worker(connection, env={}),
        open_service(connection, verdict_wait_s=PATIENCE_S),
    ):
        assert connection.server is not None
        nc = await nats.connect(connection.server.url)
        yield Caller(nc)
        await nc.close()


async def test_starts_of_a_tenant_without_budget_left_are_refused_and_others_accepted(tmp_path: Path) -> None:
    start = {"definition": {"source": STEPS}, "script": SCRIPT, "model": "scripted"}
    async with deployment(tmp_path, acme={"per": "month", "tokens": 200}) as caller:
        await caller.finished(**start)
        refused: dict[str, Any] = {}
        while not refused:  # until the worker has read the usage
            refused = (await caller.ask("start", start)).get("error") or {}
        assert refused["problems"][0]["code"] == "budget.used_up"
        assert "the budget of acme is used up" in refused["problems"][0]["message"]
        other = Caller(caller.nc, "other")
        await other.finished(**start)
    async with deployment(tmp_path, acme={"per": "month", "tokens": 200}) as caller:
        answer: dict[str, Any] = {}
        while "error" not in answer:  # a new worker reads the earlier usage
            answer = await caller.ask("start", start)
        assert answer["error"]["problems"][0]["code"] == "budget.used_up"


async def test_a_budget_that_pauses_pauses_an_active_run_once(tmp_path: Path) -> None:
    script = {"default": {**SCRIPT["default"], "delay_ms": 300}}
    names = [f"n{i}" for i in range(12)]
    source = json.dumps(document({name: {} for name in names}, list(itertools.pairwise(names))))
    async with deployment(tmp_path, **{"acme/w": {"per": "month", "turns": 2, "then": "pause"}}) as caller:
        run = await caller.start(definition={"source": source}, script=script)
        status = ""
        while status != "paused":
            status = (await caller.ask("show", {"run_id": run}))["status"]
            assert status not in ("completed", "failed")
        events = (await caller.ask("events", {"run_id": run, "types": ["run.paused"]}))["events"]
        assert "the budget of acme/w is used up: " in events[0]["event"]["payload"]["message"]
        await caller.ask("tell", {"run_id": run, "verb": "resume", "body": {}, "wait_s": PATIENCE_S})
        result = await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
        assert result["status"] == "completed"


STEPS = json.dumps(document({name: {} for name in "ab"}, [("a", "b")]))
SCRIPT: dict[str, Any] = {"default": {"text": "Done.", "usage": {"input_tokens": 90, "output_tokens": 10}}}
