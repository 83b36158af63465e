"""Retries of runs that were cancelled or killed or have expired continue from before that."""

import json
from typing import Any

import anyio
import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.runtime.client.connection import Connection
from callboard.testing.checks import check_replay
from tests.runtime.admission.test_forks import SCRIPT, TENANT, WAITS, events_of, fork_run, start
from tests.support.flow_providers import flow_of, ours
from tests.support.graphs import graph, node, step, webhook
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection

ASK = '# Ask\n\n## STEP 1: Who\n\n@elicit(input, "Who?")\n@output(who)\n\n## STEP 2: Greet\n\nGreet {{who}}.\n'
SAYS = {"turns": {"2": [{"text": "Hello."}]}}
EVENT = node("w", "FLOW", "WAIT", wait_type="event")
WAITING: dict[str, dict[str, Any]] = {
    "workflow": start(WAITS),
    "flow": {"definition": {"source": json.dumps(flow_of(ours("signal"), name="paid"))}, "script": None, "model": None},
    "graph": {
        "definition": {"source": json.dumps(graph([webhook(), EVENT, step("a")], "t -> w", "w -> a"))},
        "input": {"body": 1},
        "script": None,
        "model": None,
    },
    "playbook": {"definition": {"source": ASK}, "script": SAYS, "model": "scripted"},
}
"""A run of each language that waits for something; a workflow for its model."""


async def await_status(caller: Caller, run: str, *statuses: str, opened: str = "") -> None:
    """Wait until a run has a status, and an open effect of a type."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            shown = await caller.ask("show", {"run_id": run})
            if shown["status"] in statuses and (not opened or opened in [one["type"] for one in shown.get("open", [])]):
                return
            await anyio.sleep(0.02)


async def await_event(connection: Connection, run: str, event_type: str, path: str) -> None:
    """Wait for an event of a node."""
    async with connection.log.follow(connection.log.subjects.events(TENANT, run), 0) as feed:
        with anyio.fail_after(PATIENCE_S):
            async for item in feed:
                if (item.event.type, item.event.path) == (event_type, path):
                    return


async def tell(caller: Caller, run: str, verb: str, **body: Any) -> None:
    verdict = await caller.ask("tell", {"run_id": run, "verb": verb, "body": body})
    assert verdict.get("status") == "accepted", verdict


async def await_end(caller: Caller, run: str) -> dict[str, Any]:
    with anyio.fail_after(2 * PATIENCE_S):
        return await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S})


async def retry(caller: Caller, run: str, **given: Any) -> str:
    verdict = await caller.ask("fork", {"run_id": run, "failure": True, "start": given})
    assert verdict.get("status") == "accepted", verdict
    return verdict["run_id"]


@pytest.mark.parametrize("verb", ["cancel", "kill"])
@pytest.mark.parametrize("language_name", WAITING)
async def test_the_retry_of_a_stopped_run_continues_from_before_the_stop(
    connection: Connection, caller: Caller, language_name: str, verb: str
) -> None:
    run = await caller.start(**WAITING[language_name])
    waits_for = {"workflow": "model.call", "playbook": "human.asked"}.get(language_name, "signal.awaited")
    await await_status(caller, run, "running", "waiting:human", "waiting:signal", opened=waits_for)
    await tell(caller, run, verb)
    assert (await await_end(caller, run))["status"] == "cancelled"
    fork = await retry(caller, run, **({"script": SCRIPT} if language_name == "workflow" else {}))
    shown = await caller.ask("show", {"run_id": fork})
    assert shown["origin"] == run
    if language_name == "playbook":
        await await_status(caller, fork, "waiting:human")
        await tell(caller, fork, "answer", user_response="Ada")
    elif language_name != "workflow":
        await await_status(caller, fork, "waiting:signal")
        await tell(caller, fork, "signal", name={"flow": "paid", "graph": "w"}[language_name], data={"amount": 3})
    assert (await await_end(caller, fork))["status"] == "completed"
    events = await events_of(connection, fork)
    assert "cancel.requested" not in [event.type for event in events]
    check_replay(language, RunRef(TENANT, fork), events)


@pytest.mark.parametrize("verb", ["cancel", "kill"])
async def test_the_retry_of_a_run_that_was_stopped_in_a_pause_continues(
    connection: Connection, caller: Caller, verb: str
) -> None:
    slow = {"turns": {**SCRIPT["turns"], "a": [{"data": {"found": "a"}, "delay_ms": 300}]}}
    run = await caller.start(**start(slow))
    await await_status(caller, run, "running", opened="model.call")
    await tell(caller, run, "pause")
    await await_event(connection, run, "node.exit", "a")
    await tell(caller, run, verb)
    assert (await await_end(caller, run))["status"] == "cancelled"
    fork = await retry(caller, run, by="ada")
    assert (await await_end(caller, fork))["status"] == "completed"
    events = await events_of(connection, fork)
    asked = [event.path for event in events if event.type == "model.result"]
    assert sorted(set(asked)) == ["a", "b", "c"]
    parted_at = (await caller.ask("show", {"run_id": fork}))["parted_at"]
    assert "a" not in [event.path for event in events if event.n > parted_at and event.type == "model.call"]
    resumed = [json.loads(bytes(event.payload)) for event in events if event.type == "run.resumed"]
    assert [one["by"] for one in resumed] == ["ada"]
    check_replay(language, RunRef(TENANT, fork), events)


async def test_the_retry_of_a_run_that_was_cancelled_at_a_breakpoint_continues(caller: Caller) -> None:
    run = await caller.start(**start(breakpoints=["b"]))
    await await_status(caller, run, "paused")
    await tell(caller, run, "cancel")
    assert (await await_end(caller, run))["status"] == "cancelled"
    fork = await retry(caller, run)
    assert (await await_end(caller, fork))["status"] == "completed"
    # A fork at that event pauses at the breakpoint as the run did.
    at = (await caller.ask("show", {"run_id": fork}))["parted_at"]
    verdict = await caller.ask("fork", {"run_id": run, "at": at})
    await await_status(caller, verdict["run_id"], "paused")


async def test_a_retry_repeats_an_open_call_by_another_model(connection: Connection, caller: Caller) -> None:
    other = await caller.finished(**start())
    run = await caller.start(**start(WAITS))
    await await_status(caller, run, "running", opened="model.call")
    await await_event(connection, run, "model.call", "b")
    await tell(caller, run, "kill")
    await await_end(caller, run)
    fork, result = await fork_run(caller, run, failure=True, start={"model": f"recorded:{other}"})
    assert result["status"] == "completed"
    calls = [json.loads(bytes(e.payload)) for e in await events_of(connection, fork) if e.type == "model.call"]
    assert [call["model"] for call in calls] == ["scripted", f"recorded:{other}", f"recorded:{other}"]


@pytest.mark.parametrize("breakpoints", [[], ["1"]], ids=["a question", "a breakpoint"])
async def test_the_retry_of_an_expired_run_waits_again_or_continues(
    connection: Connection, caller: Caller, breakpoints: list[str]
) -> None:
    options = {"expires_after": 1} if not breakpoints else {"expires_after": 1, "elicit": {"1": "Ada"}}
    source = {"definition": {"source": ASK}, "script": SAYS, "model": "scripted"}
    run = await caller.start(**source, options=options, breakpoints=breakpoints)
    assert (await await_end(caller, run))["status"] == "expired"
    fork = await retry(caller, run, **({} if breakpoints else {"options": {"expires_after": 600}}))
    if not breakpoints:
        await await_status(caller, fork, "waiting:human")
        await tell(caller, fork, "answer", user_response="Ada")
    assert (await await_end(caller, fork))["status"] == "completed"
    check_replay(language, RunRef(TENANT, fork), await events_of(connection, fork))
