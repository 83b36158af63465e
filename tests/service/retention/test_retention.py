"""Retention: rules remove ended runs automatically, and no others."""

import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from callboard.bus.errors import ConfigInvalid
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.archive import Archive
from callboard.bus.nats.purge import PurgeMark, purge_mark
from callboard.bus.subjects import RunRef
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection
from callboard.runtime.settings.config import load
from callboard.runtime.settings.retention_settings import RetentionRule
from callboard.service.operations.run_lists import listings
from callboard.service.retention import retention
from callboard.service.retention.retention import Expiry, ExpiryResult
from callboard.surfaces.cli import exits
from tests.support.flows import call, flow, returned
from tests.support.patience import until
from tests.support.purges import TENANT
from tests.support.service_client import PATIENCE_S, WAITS, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection
from tests.support.workdir import Workdir

LATER = dt.timedelta(days=100)


def rule(**members: Any) -> RetentionRule:
    return RetentionRule.model_validate({"age": "90d", **members})


async def expired(
    connection: Connection, one: RetentionRule, *, dry: bool = False, after: dt.timedelta = LATER
) -> ExpiryResult:
    """Apply a rule as if it were later by `after`."""
    async with listings(connection) as found:
        expiry = Expiry(connection.log, found, TENANT, dry=dry)
        return await expiry.carry_out("mine", one, dt.datetime.now(dt.UTC) + after)


def eventually(holds: Callable[[], bool]) -> None:
    """Repeat a check of other processes, which set no event in this one."""
    until_at = time.monotonic() + 2 * PATIENCE_S
    while not holds():
        assert time.monotonic() < until_at
        time.sleep(0.1)


async def listed(caller: Caller) -> set[str]:
    return {row["run"] for row in (await caller.ask("runs", {}))["runs"]}


async def test_only_matching_runs_of_the_given_age_are_removed(connection: Connection, caller: Caller) -> None:
    mine = await caller.finished(run_id="mine", tags={"customer": "acme"})
    other = await caller.finished(run_id="other")
    going = await caller.start(run_id="going", script=WAITS)
    tagged = rule(where="tag.customer=acme", status=["completed", "failed"], definition="count")
    assert (await expired(connection, tagged, after=dt.timedelta(days=89))).runs == []
    assert (await expired(connection, rule(status="failed"))).runs == []
    assert (await expired(connection, rule(definition="another"))).runs == []
    assert await expired(connection, tagged, dry=True) == ExpiryResult("mine", TENANT, [mine], [])
    assert await listed(caller) == {mine, other, going}
    assert await expired(connection, tagged) == ExpiryResult("mine", TENANT, [mine], [])
    assert await listed(caller) == {other, going}
    assert await purge_mark(connection.log, RunRef(TENANT, mine)) == PurgeMark(mine, "retention", "mine")
    assert (await expired(connection, rule())).runs == [other]
    assert await listed(caller) == {going}


async def test_a_run_with_a_fork_is_kept_and_reported_once(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(run_id="origin")
    fork = (await caller.ask("fork", {"run_id": origin, "from": "b", "start": {"tags": {"keep": "yes"}}}))["run_id"]
    await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S})
    kept = await expired(connection, rule(where="not tag.keep=yes"))
    assert (kept.runs, [(one.run, one.code) for one in kept.stays]) == ([], [(origin, "purge.forked")])
    # A run is removed together with its fork, and the preview says so.
    foreseen = await expired(connection, rule(), dry=True)
    assert (foreseen.runs, foreseen.stays) == ([fork, origin], [])
    # Over several rounds it is reported once, and ended runs are still removed.
    config = connection.config.model_copy(
        update={
            "retention": {"short": RetentionRule(age="1s", where="not tag.keep=yes", tenant=(TENANT,))},
            "retention_every_s": 0.2,
        }
    )
    holder = retention.RetentionLeader(Connection(config, connection.nc, connection.log, connection.server))
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(holder.run, False)
            for _ in range(2):
                run = await caller.finished()

                async def has_gone(run: str = run) -> bool:
                    return await purge_mark(connection.log, RunRef(TENANT, run)) is not None

                await until(has_gone)
            tasks.cancel_scope.cancel()
    told = [line for line in logs if line["event"] == "runs could not be purged"]
    assert [line["first"] for line in told] == [[f"{origin}: {fork} shares its events"]]
    assert (await caller.ask("show", {"run_id": fork}))["status"] == "completed"


async def test_a_run_is_archived_with_its_children_before_it_goes(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(7)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    steps: dict[str, Any] = {"a": call(target), "done": returned()}
    run = await caller.finished(definition={"source": json.dumps(flow(steps))}, script=None, model=None, run_id="a/b c")
    known = await listed(caller)
    folder = tmp_path / "kept"
    folder.write_text("a file, no folder")
    refused = await expired(connection, rule(archive_to=str(folder)))
    assert (refused.runs, {one.code for one in refused.stays}) == ([], {"file.unwritable"})
    assert await listed(caller) == known
    folder.unlink()
    assert (await expired(connection, rule(archive_to=str(folder)))).runs == [run]
    (file,) = folder.rglob("*.callboard")
    assert {one.run for one in Archive(file).runs} == known
    assert await listed(caller) == set()


async def test_a_run_without_an_answer_of_the_log_is_kept_and_blocks_no_other(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await caller.finished() for _ in range(6)]
    silent, asked = {runs[1]}, list[str]()
    checked = retention.check_purge

    async def check(client: Client, run: str, besides: Any) -> None:
        asked.append(run)
        if run in silent:
            raise NoAnswer("lost")
        await checked(client, run, besides)

    monkeypatch.setattr(retention, "check_purge", check)
    found = await expired(connection, rule())
    assert found.runs == [runs[0], *runs[2:]]
    assert [(one.run, one.code) for one in found.stays] == [(runs[1], "log.no_answer")]
    # After several silent runs in a row the rule stops.
    silent = {await caller.finished() for _ in range(6)}
    asked.clear()
    with pytest.raises(NoAnswer):
        await expired(connection, rule())
    assert len(asked) == 1 + retention.SILENT_MAX


def test_a_deployment_applies_its_retention_rules(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("callboard.toml", 'retention_every_s = 1\n[retention.short]\nage = "1s"\nstatus = "completed"\n')
    with workdir.up():
        kept = workdir.start_run(*workdir.write_one({"error": "overloaded"}))
        workdir.start_run(*workdir.write_one({"text": "x"}))
        eventually(lambda: [row["run"] for row in workdir.run_json("runs")] == [kept])
    nothing = workdir.run("retention", "--dry-run")
    assert (nothing.exit_code, nothing.stdout) == (exits.OK, "short: 0 runs of default would be removed\n")


@pytest.mark.usefixtures("own_servers")
def test_the_retention_command_lists_the_runs_and_asks_first(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    assert workdir.run("retention", "--dry-run").exit_code == exits.USAGE
    for run in ("first", "second"):
        assert workdir.run("run", *workdir.write_one({"text": "x"}), "--run-id", run).exit_code == exits.OK
    workdir.write("callboard.toml", '[retention.short]\nage = "1s"\n')
    eventually(lambda: len(workdir.run_json("retention", "--dry-run")[0]["runs"]) == 2)
    with workdir.process("up", "--json") as up:
        assert up.stdout is not None
        up.stdout.readline()
        refused = workdir.run("retention", stdin="n\n")
        assert "short: 2 runs of default would be removed\n  first\n  second\n" in refused.stderr
        done = workdir.run_json("retention", "--yes")
    assert done == [{"rule": "short", "tenant": "default", "runs": ["first", "second"], "stays": []}]


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({}, "age"),
        ({"age": "0s"}, "age must be at least 1 s"),
        ({"age": "old"}, "age"),
        ({"age": "1d", "status": "running"}, "status"),
        ({"age": "1d", "where": "status="}, "no value after status="),
        ({"age": "1d", "archive_to": "here"}, "archive_to must be an absolute path"),
        ({"age": "1d", "keep": "1d"}, "keep"),
    ],
)
def test_an_invalid_retention_rule_is_refused(members: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        load({"retention": {"mine": members}}, env={}, cwd=tmp_path)
    assert any("retention.mine" in str(one) and wrong in str(one) for one in refused.value.problems)
