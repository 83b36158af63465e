"""Trying again what ended badly: runs that were cancelled, killed or have expired go on from before that."""

import json
from typing import Any

import anyio
import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.runtime.client.connection import Connection
from callboard.testing.checks import check_replay
from tests.runtime.admission.test_forks import SCRIPT, TENANT, WAITS, events_of, forked, start
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


async def stood(caller: Caller, run: str, *statuses: str, opened: str = "") -> None:
    """Wait until a run stands so, with an effect open of that type."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            shown = await caller.ask("show", {"run_id": run})
            if shown["status"] in statuses and (not opened or opened in [one["type"] for one in shown.get("open", [])]):
                return
            await anyio.sleep(0.02)


async def came(connection: Connection, run: str, event_type: str, path: str) -> None:
    """Wait until an event of a node has come."""
    async with connection.log.follow(connection.log.subjects.events(TENANT, run), 0) as feed:
        with anyio.fail_after(PATIENCE_S):
            async for item in feed:
                if (item.event.type, item.event.path) == (event_type, path):
                    return


async def tell(caller: Caller, run: str, verb: str, **body: Any) -> None:
    told = await caller.ask("tell", {"run_id": run, "verb": verb, "body": body})
    assert told.get("status") == "accepted", told


async def ended(caller: Caller, run: str) -> dict[str, Any]:
    with anyio.fail_after(2 * PATIENCE_S):
        return await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S})


async def retried(caller: Caller, run: str, **given: Any) -> str:
    verdict = await caller.ask("fork", {"run_id": run, "failure": True, "start": given})
    assert verdict.get("status") == "accepted", verdict
    return verdict["run_id"]


@pytest.mark.parametrize("verb", ["cancel", "kill"])
@pytest.mark.parametrize("spoken", WAITING)
async def test_what_was_stopped_goes_on_from_before(
    connection: Connection, caller: Caller, spoken: str, verb: str
) -> None:
    run = await caller.start(**WAITING[spoken])
    waits_for = {"workflow": "model.call", "playbook": "human.asked"}.get(spoken, "signal.awaited")
    await stood(caller, run, "running", "waiting:human", "waiting:signal", opened=waits_for)
    await tell(caller, run, verb)
    assert (await ended(caller, run))["status"] == "cancelled"
    fork = await retried(caller, run, **({"script": SCRIPT} if spoken == "workflow" else {}))
    shown = await caller.ask("show", {"run_id": fork})
    assert shown["origin"] == run
    if spoken == "playbook":
        await stood(caller, fork, "waiting:human")
        await tell(caller, fork, "answer", user_response="Ada")
    elif spoken != "workflow":
        await stood(caller, fork, "waiting:signal")
        await tell(caller, fork, "signal", name={"flow": "paid", "graph": "w"}[spoken], data={"amount": 3})
    assert (await ended(caller, fork))["status"] == "completed"
    events = await events_of(connection, fork)
    assert "cancel.requested" not in [event.type for event in events]
    check_replay(language, RunRef(TENANT, fork), events)


@pytest.mark.parametrize("verb", ["cancel", "kill"])
async def test_what_was_paused_when_it_was_stopped_goes_on(connection: Connection, caller: Caller, verb: str) -> None:
    slow = {"turns": {**SCRIPT["turns"], "a": [{"data": {"found": "a"}, "delay_ms": 300}]}}
    run = await caller.start(**start(slow))
    await stood(caller, run, "running", opened="model.call")
    await tell(caller, run, "pause")
    await came(connection, run, "node.exit", "a")
    await tell(caller, run, verb)
    assert (await ended(caller, run))["status"] == "cancelled"
    fork = await retried(caller, run, by="ada")
    assert (await ended(caller, fork))["status"] == "completed"
    events = await events_of(connection, fork)
    asked = [event.path for event in events if event.type == "model.result"]
    assert sorted(set(asked)) == ["a", "b", "c"]
    parted_at = (await caller.ask("show", {"run_id": fork}))["parted_at"]
    assert "a" not in [event.path for event in events if event.n > parted_at and event.type == "model.call"]
    resumed = [json.loads(bytes(event.payload)) for event in events if event.type == "run.resumed"]
    assert [one["by"] for one in resumed] == ["ada"]
    check_replay(language, RunRef(TENANT, fork), events)


async def test_what_stood_at_a_breakpoint_when_it_was_cancelled_goes_on(caller: Caller) -> None:
    run = await caller.start(**start(breakpoints=["b"]))
    await stood(caller, run, "paused")
    await tell(caller, run, "cancel")
    assert (await ended(caller, run))["status"] == "cancelled"
    fork = await retried(caller, run)
    assert (await ended(caller, fork))["status"] == "completed"
    # Forked there by hand it stands as the run did.
    at = (await caller.ask("show", {"run_id": fork}))["parted_at"]
    verdict = await caller.ask("fork", {"run_id": run, "at": at})
    await stood(caller, verdict["run_id"], "paused")


async def test_a_call_that_was_under_way_is_asked_of_another_model(connection: Connection, caller: Caller) -> None:
    other = await caller.finished(**start())
    run = await caller.start(**start(WAITS))
    await stood(caller, run, "running", opened="model.call")
    await came(connection, run, "model.call", "b")
    await tell(caller, run, "kill")
    await ended(caller, run)
    fork, result = await forked(caller, run, failure=True, start={"model": f"recorded:{other}"})
    assert result["status"] == "completed"
    calls = [json.loads(bytes(e.payload)) for e in await events_of(connection, fork) if e.type == "model.call"]
    assert [call["model"] for call in calls] == ["scripted", f"recorded:{other}", f"recorded:{other}"]


@pytest.mark.parametrize("breakpoints", [[], ["1"]], ids=["a question", "a breakpoint"])
async def test_what_has_expired_waits_once_more_or_goes_on(
    connection: Connection, caller: Caller, breakpoints: list[str]
) -> None:
    options = {"expires_after": 1} if not breakpoints else {"expires_after": 1, "elicit": {"1": "Ada"}}
    source = {"definition": {"source": ASK}, "script": SAYS, "model": "scripted"}
    run = await caller.start(**source, options=options, breakpoints=breakpoints)
    assert (await ended(caller, run))["status"] == "expired"
    fork = await retried(caller, run, **({} if breakpoints else {"options": {"expires_after": 600}}))
    if not breakpoints:
        await stood(caller, fork, "waiting:human")
        await tell(caller, fork, "answer", user_response="Ada")
    assert (await ended(caller, fork))["status"] == "completed"
    check_replay(language, RunRef(TENANT, fork), await events_of(connection, fork))
