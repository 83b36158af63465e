"""Workflows that continue as a new run: alone, as children, with signals and commands, and under crashes."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from callboard import Runtime
from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.log.successors import find_newest
from callboard.bus.nats.archive import Archive
from callboard.bus.nats.purge import PurgeMark, find_next_run
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.features.access.subject import OPERATOR
from callboard.runtime.admission.command_routing import route
from callboard.runtime.client.client import UnknownRun
from callboard.runtime.client.connection import Connection
from callboard.runtime.client.errors import RequestRefused
from callboard.runtime.hosting.code_loader import load_object
from callboard.runtime.hosting.code_registration import register_bundle
from callboard.service.operations.archives import archive_runs, import_as, import_runs
from callboard.service.operations.removal import check_purge, purge_run
from callboard.surfaces.cli import exits
from callboard.surfaces.mcp.caller import Caller as McpCaller
from callboard.surfaces.mcp.tools import Awaiting
from callboard.testing import Scenario
from tests.support import python_workflows as workflows
from tests.support.scenarios import find_payload
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection
from tests.support.workdir import Workdir


@pytest.fixture(scope="module")
async def runtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Runtime]:
    async with Runtime(data_dir=tmp_path_factory.mktemp("state"), code=[workflows], allow_scripts=True) as runtime:
        yield runtime


@pytest.fixture
async def service(connection: Connection, caller: Caller) -> Caller:
    """A caller of the service, which performs the workflows of the tests."""
    caller.tenant = connection.config.tenant
    await register_bundle(connection, load_object(workflows))
    return caller


def find_end(scenario: Scenario) -> ev.RunEnd:
    return find_payload(scenario, ev.RunEnd)


def test_the_end_of_a_run_names_its_successor(scenario: Scenario) -> None:
    scenario.start(workflows.counting_down, input={"left": 2})
    end = find_end(scenario)
    assert end.status == "completed"
    assert end.successor is not None
    assert end.successor.input == {"left": 1, "seen": ["2"]}
    scenario.crash_everywhere()


def test_signals_that_were_not_awaited_are_passed_on(scenario: Scenario) -> None:
    scenario.start(workflows.collecting, input={"until": 2}).signal("other", 1).signal("item", "a").signal("item", "b")
    scenario.signal("item", "c").signal("go")
    end = find_end(scenario)
    assert end.successor is not None
    assert [(one.name, one.data) for one in end.successor.signals] == [("other", 1), ("item", "c")]
    scenario.crash_everywhere()


def test_a_cancelled_run_does_not_continue(scenario: Scenario) -> None:
    scenario.start(workflows.continuing_when_cancelled).cancel("enough")
    assert find_end(scenario).status == "cancelled"
    assert find_end(scenario).successor is None


def test_a_step_cannot_continue_a_run(scenario: Scenario) -> None:
    scenario.start(workflows.continuing_in_a_step)
    end = find_end(scenario)
    assert end.error is not None
    assert "continue_as_new is for workflows, and a step has called it" in end.error.message


def test_a_run_continues_as_a_run_of_its_own_workflow(scenario: Scenario) -> None:
    scenario.start(workflows.continuing_another)
    end = find_end(scenario)
    assert end.error is not None
    assert "continue_as_new(continuing_another, …), not sleeping" in end.error.message


async def test_outside_of_a_run_the_function_is_called_again() -> None:
    assert await workflows.counting_down(2) == ["2", "1", "0"]


async def test_a_result_is_that_of_the_last_run(runtime: Runtime) -> None:
    run = await runtime.start(workflows.counting_down, input={"left": 3})
    result = await run.result()
    assert result.output == ["3", "2", "1", "0"]
    assert result.run != run.id
    first = await run.show()
    assert first.status == "completed"
    assert first.continued_as


async def test_signals_reach_the_newest_run(runtime: Runtime) -> None:
    """Signals that are sent while a run continues again and again arrive once, and a repeated one has no effect."""
    run = await runtime.start(workflows.counting_signals, input={"total": 20, "each": 3})
    for n in range(20):
        await run.signal("item", n, id=f"item-{n}")
        if n % 5 == 0:
            await run.signal("item", n, id=f"item-{n}")
    assert sorted((await run.result()).output) == list(range(20))


async def test_a_command_for_the_first_run_reaches_the_newest(runtime: Runtime) -> None:
    run = await runtime.start(workflows.sleeping)
    await run.cancel("enough")
    result = await run.result()
    assert result.status == "cancelled"
    assert result.continues


async def test_a_parent_counts_the_usage_of_all_runs(runtime: Runtime) -> None:
    reply = {"text": "a", "usage": {"input_tokens": 5, "output_tokens": 2}}
    run = await runtime.start(workflows.asking_model_twice, script={"default": reply})
    result = await run.result()
    assert result.output == "a"
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10, 4)


async def test_a_parent_gets_the_result_of_the_last_run(runtime: Runtime) -> None:
    run = await runtime.start(workflows.waiting_for_counting_down, input={"left": 3})
    assert (await run.result()).output == ["3", "2", "1", "0"]


async def test_a_parent_learns_that_the_next_run_was_refused(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[workflows], allow_scripts=True) as runtime:
        parent = await runtime.start(workflows.waiting_for_continuing, script={"default": {"text": "x"}})
        async with aclosing(parent.events()) as events:
            begun = ev.payload_of(await anext(event async for event in events if event.type == "child.start"))
    assert isinstance(begun, ev.ChildStart)
    async with Runtime(data_dir=tmp_path / "state", code=[workflows], allow_scripts=False) as runtime:
        await runtime.get_run(begun.child).signal("go")
        result = await runtime.get_run(parent.id).result()
        assert result.error is not None
        assert result.error.code == "child.refused"


async def test_a_budget_that_is_used_up_does_not_refuse_the_next_run(tmp_path: Path) -> None:
    reply = {"text": "a", "usage": {"input_tokens": 5, "output_tokens": 2}}
    budgets = {"acme": {"per": "month", "tokens": 5}}
    async with Runtime(
        data_dir=tmp_path / "state", code=[workflows], allow_scripts=True, budgets=budgets, tenant="acme"
    ) as runtime:
        run = await runtime.start(workflows.continuing_on_signal)
        await (await runtime.start(workflows.asking_model, input={"left": 0}, script={"default": reply})).result()
        with pytest.raises(RequestRefused, match="used up"):
            await start_until_refused(runtime)
        await run.signal("go")
        assert (await run.result()).output == 1


async def start_until_refused(runtime: Runtime) -> None:
    """Start runs until the worker has heard that the budget is used up."""
    while True:
        await (await runtime.start(workflows.counting_down, input={"left": 0})).result()


async def test_commands_and_callers_pass_over_a_run_that_was_purged(connection: Connection, service: Caller) -> None:
    run = await service.start(definition={"name": "sleeping"}, input={"n": 0})
    first = connection.client.ref(run)
    second = await following(connection, first)
    last = await following(connection, second)
    await purge_run(connection.client, second.run, PurgeMark())
    told = await service.ask("tell", {"run_id": run, "verb": "cancel", "body": {}})
    assert told["status"] == "accepted"
    result = await service.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
    assert (result["status"], result["run_id"]) == ("cancelled", last.run)
    await purge_run(connection.client, last.run, PurgeMark())
    refused = await service.refused("tell", {"run_id": run, "verb": "cancel", "body": {}})
    assert refused["problems"][0]["code"] == "run.unknown"
    assert (await service.refused("result", {"run_id": run, "wait_s": 0.1}))["code"] == "run.unknown"
    with pytest.raises(UnknownRun):
        await connection.client.await_admission(second.run)


async def following(connection: Connection, ref: RunRef) -> RunRef:
    """Return the run that continues a run, when it is admitted."""
    async with connection.client.follow(ref.run, event_type="run.end") as feed:
        end = ev.payload_of((await anext(feed)).event)
    assert isinstance(end, ev.RunEnd)
    assert end.successor is not None
    await connection.client.await_admission(end.successor.run)
    return connection.client.ref(end.successor.run)


async def test_the_retry_of_a_parent_continues_in_the_newest_run_of_its_child(
    connection: Connection, service: Caller
) -> None:
    run = await service.start(definition={"name": "waiting_for_sleeping"})
    async with connection.client.follow(run, event_type="child.start") as feed:
        key = (await anext(feed)).event.key
    last = await following(connection, await following(connection, connection.client.ref(child_id(run, key))))
    await service.ask("tell", {"run_id": run, "verb": "cancel", "body": {}})
    await service.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
    again = (await service.ask("fork", {"run_id": run, "failure": True}))["run_id"]
    async with connection.client.follow(child_id(again, key), event_type="run.accepted") as feed:
        accepted = ev.payload_of((await anext(feed)).event)
    assert isinstance(accepted, ev.RunAccepted)
    assert accepted.forked_from is not None
    assert (accepted.forked_from.run, accepted.start["input"]) == (last.run, {"n": 2})
    await service.ask("tell", {"run_id": again, "verb": "kill", "body": {}})


async def test_a_run_from_an_archive_can_be_purged_without_the_next_one(
    runtime: Runtime, connection: Connection, service: Caller, tmp_path: Path
) -> None:
    run = await runtime.start(workflows.counting_down, input={"left": 1})
    await run.result()
    archive, log = tmp_path / "one.callboard", run._messages.log  # pyright: ignore[reportPrivateUsage]
    tenant = run._messages.tenant  # pyright: ignore[reportPrivateUsage]
    await archive_runs(log, tenant, [run.id], archive, children=False, progress=lambda _: None)
    opened = Archive(archive)
    await import_runs(connection.log, service.tenant, opened, opened.runs, lambda _: None)
    await check_purge(connection.client, run.id)


async def test_a_command_for_a_run_whose_start_was_refused_is_refused(connection: Connection, service: Caller) -> None:
    """The command was passed on before the start was refused."""
    ref = connection.client.ref("never")
    verdict = await service.ask("start", {"run_id": ref.run, "definition": {"name": "nothing"}})
    assert verdict["error"]["code"] == "start.refused"
    heard = await service.nc.subscribe(connection.log.subjects.live(ref, "", ev.CommandRefused.type))
    await service.nc.flush()
    await route(connection.log, ref, "cancel", b"{}", "passed-on")
    refused = json.loads((await heard.next_msg(PATIENCE_S)).data)
    assert (refused["verb"], refused["code"]) == ("cancel", "run.unknown")


async def test_the_service_and_its_tools_wait_for_the_last_run(connection: Connection, service: Caller) -> None:
    async def report(_line: str) -> None: ...

    run = await service.start(definition={"name": "counting_down"}, input={"left": 2})
    result = await service.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
    assert result["output"] == ["2", "1", "0"]
    seen = await Awaiting(connection).run(run, PATIENCE_S, McpCaller("test", report, subject=OPERATOR))
    assert (seen.run_id, seen.output) == (result["run_id"], ["2", "1", "0"])


async def test_a_parent_is_purged_with_all_runs_of_its_child(connection: Connection, service: Caller) -> None:
    run = await service.finished(definition={"name": "waiting_for_counting_down"}, input={"left": 2})
    (begun,) = [event for event in await connection.client.events(run) if event.type == ev.ChildStart.type]
    child = connection.client.ref(child_id(run, begun.key))
    last, _ = await find_newest(connection.log, child)
    assert last != child
    await purge_run(connection.client, child.run, PurgeMark())
    await purge_run(connection.client, run, PurgeMark())
    assert await connection.log.last(last) is None


async def test_an_archive_has_all_runs_of_a_child(connection: Connection, service: Caller, tmp_path: Path) -> None:
    run = await service.finished(definition={"name": "waiting_for_counting_down"}, input={"left": 3})
    (begun,) = [event for event in await connection.client.events(run) if event.type == ev.ChildStart.type]
    chain = [connection.client.ref(child_id(run, begun.key))]
    while (following := await find_next_run(connection.log, chain[-1])) is not None:
        chain.append(following)
    assert len(chain) == 4
    file, log = tmp_path / "all.callboard", connection.log
    found = await archive_runs(log, service.tenant, [run], file, children=True, progress=lambda _: None)
    assert [one.run for one in found] == [run, *(one.run for one in chain)]
    assert [one.successor for one in found] == ["", *(one.run for one in chain[1:]), ""]
    archive = Archive(file)
    with pytest.raises(CallboardError, match="is continued by"):
        await import_as(log, service.tenant, archive, archive.run(chain[0].run), "another")
    # The archive has the runs after one that is missing.
    await purge_run(connection.client, chain[1].run, PurgeMark())
    rest = tmp_path / "rest.callboard"
    left = await archive_runs(log, service.tenant, [run], rest, children=True, progress=lambda _: None)
    assert [one.run for one in left] == [run, chain[0].run, chain[2].run, chain[3].run]
    await purge_run(connection.client, run, PurgeMark())
    assert [await log.last(one) for one in chain] == [None] * 4
    imported = await import_runs(log, service.tenant, archive, archive.runs, lambda _: None)
    assert [one.verdict for one in imported] == ["imported"] * 5
    newest, _ = await find_newest(log, chain[0])
    assert newest == chain[3]


def test_a_run_at_the_command_line_is_followed_to_the_last_one(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(
        "from callboard import continue_as_new, workflow\n\n"
        "@workflow\nasync def count(n: int = 0) -> int:\n"
        "    if n < 2:\n        continue_as_new(n + 1)\n    return n\n"
    )
    workdir = Workdir(tmp_path)
    ran = workdir.call("run", "counting.py:count", "--run-id", "r1")
    assert ran.returncode == exits.OK, ran
    assert "Output: 2" in ran.stdout
    assert "continued   as" in workdir.call("show", "r1").stdout
    run = json.loads(workdir.call("runs", "--json").stdout)[-1]["run"]
    assert run == "r1"
