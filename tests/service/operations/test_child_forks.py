"""Child runs of a retried run continue where their predecessors stopped and repeat no paid turn."""

import json
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.runtime.run.log import read_run
from callboard.service.operations.retry_point import NowhereToFork, find_continue_place
from tests.runtime.admission.test_forks import DEFINITION, FAILS, SCRIPT, TENANT, WAITS, events_of, fork_run
from tests.support.event_logs import Log
from tests.support.flows import call, flow, returned
from tests.support.patience import until
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection

KEY = "main/a:call#1.1!child"


ONE = {"id": "one", "name": "One", "entry": "a", "nodes": {"a": {"name": "A", "instruction": "Do a."}}, "edges": []}


def child(definition: dict[str, Any], language: str) -> dict[str, Any]:
    given = {"language": language, "source": json.dumps(definition)}
    return {"provider": "mwl:provider.call/callboard/definition/v1", "with": given}


def parent_of(target: dict[str, Any]) -> dict[str, Any]:
    return flow({"a": call(target), "done": returned()})


PARENT = parent_of(child(DEFINITION, "workflow"))


def start(definition: dict[str, Any], script: Any = FAILS, **given: Any) -> dict[str, Any]:
    return {"definition": {"source": json.dumps(definition)}, "script": script, "model": "scripted", **given}


async def own_turns(connection: Connection, run: str) -> list[str]:
    """The paths of the turns that a run has paid for itself."""
    events = await events_of(connection, run)
    accepted = ev.payload_of(events[0])
    assert isinstance(accepted, ev.RunAccepted)
    shared = accepted.forked_from.n if accepted.forked_from is not None else 0
    return [event.path for event in events if event.type == ev.ModelResult.type and event.n > shared]


async def test_a_retried_parent_continues_in_its_failed_child_and_grandchild(
    connection: Connection, caller: Caller
) -> None:
    origin = await caller.finished(**start(parent_of(child(PARENT, "flow"))))
    below = child_id(origin, KEY)
    lowest = child_id(below, KEY)
    # The node that follows the failed one is asked as well.
    assert await own_turns(connection, lowest) == ["a", "b", "c"]
    # It fails once more, and then no longer.
    again, result = await fork_run(caller, origin, failure=True)
    assert result["status"] == "failed"
    assert await own_turns(connection, child_id(child_id(again, KEY), KEY)) == ["b", "c"]
    last, result = await fork_run(caller, again, failure=True, start={"script": SCRIPT})
    assert (result["status"], result["output"]) == ("completed", {"found": "c"})
    own = child_id(child_id(last, KEY), KEY)
    assert await own_turns(connection, own) == ["b", "c"]
    accepted = ev.payload_of((await events_of(connection, own))[0])
    assert isinstance(accepted, ev.RunAccepted)
    assert accepted.forked_from is not None
    assert accepted.forked_from.run == child_id(child_id(again, KEY), KEY)
    assert accepted.parent == ev.Parent(child_id(last, KEY), KEY, 2)
    assert (await events_of(connection, last))[-1].type == ev.RunEnd.type
    # Shared events are recorded once, and the origin and its children are unchanged.
    assert [(await events_of(connection, run))[-1].type for run in (origin, below, lowest)] == [ev.RunEnd.type] * 3


async def test_a_retried_gather_keeps_the_results_of_its_children(connection: Connection, caller: Caller) -> None:
    """One child has ended well, the other one has failed; both are asked for once more."""
    calls = [child(ONE, "workflow"), child(DEFINITION, "workflow")]
    gather = {"action": "Gather", "calls": calls, "next": "done"}
    origin = await caller.finished(**start(flow({"a": gather, "done": returned()})))
    keys = [event.key for event in await events_of(connection, origin) if event.type == ev.ChildStart.type]
    taken = [await own_turns(connection, child_id(origin, key)) for key in keys]
    assert sorted(taken) == [["a"], ["a", "b", "c"]]
    fork, result = await fork_run(caller, origin, failure=True, start={"script": SCRIPT})
    assert result["status"] == "completed", result
    again = [await own_turns(connection, child_id(fork, key)) for key in keys]
    assert again == [[] if before == ["a"] else ["b", "c"] for before in taken]


async def test_a_retried_cancelled_parent_continues_in_its_child(connection: Connection, caller: Caller) -> None:
    origin = await caller.start(**start(PARENT, WAITS))
    below = child_id(origin, KEY)

    async def waits() -> bool:
        found = await read_run(connection.log, RunRef(TENANT, below))
        return [item.event.path for item in found if item.event.type == ev.ModelCall.type] == ["a", "b"]

    await until(waits)
    await caller.ask("tell", {"run_id": origin, "verb": "cancel", "body": {}})
    assert (await caller.ask("result", {"run_id": origin, "wait_s": PATIENCE_S}))["status"] == "cancelled"
    fork, result = await fork_run(caller, origin, failure=True, start={"script": SCRIPT})
    assert result["status"] == "completed"
    # The new child repeats the turn that was interrupted.
    assert await own_turns(connection, child_id(fork, KEY)) == ["b", "c"]


async def test_a_changed_child_restarts_with_a_warning(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**start(PARENT))
    otherwise: dict[str, Any] = json.loads(json.dumps(DEFINITION).replace("Do a.", "Do it otherwise."))
    other = json.dumps(parent_of(child(otherwise, "workflow")))
    fork, result = await fork_run(
        caller, origin, failure=True, start={"script": SCRIPT, "definition": {"source": other}}
    )
    assert result["status"] == "completed"
    own = child_id(fork, KEY)
    assert await own_turns(connection, own) == ["a", "b", "c"]
    accepted = ev.payload_of((await events_of(connection, own))[0])
    assert isinstance(accepted, ev.RunAccepted)
    assert [warning.code for warning in accepted.warnings] == ["fork.begun_anew"]
    assert "fork.diverges" in accepted.warnings[0].message


async def test_invalid_child_forks_are_refused(caller: Caller) -> None:
    origin = await caller.finished(**start(PARENT))
    below = child_id(origin, KEY)

    async def refused(children: Any) -> list[tuple[str, str]]:
        error = await caller.refused("start", {"fork": {"run": origin, "at": 4, "children": children}})
        return [(one["code"], one["where"]) for one in error["problems"]]

    assert await refused({"main/b:call#1.1!child": {"run": below, "at": 3}}) == [("fork.no_child", "fork.children")]
    assert await refused({KEY: {"run": "nobody", "at": 3}}) == [("run.unknown", f"fork.children.{KEY}.run")]
    assert await refused({KEY: {"run": below, "at": 9_000}}) == [("fork.no_event", f"fork.children.{KEY}.at")]
    assert await refused({KEY: {"at": 3}}) == [("start.fork", "fork")]


# -- places in a child ------------------------------------------------------------------------------------------------


def log_of(*payloads: ev.Payload) -> list[Event]:
    log = Log("child")
    for payload in payloads:
        log.add(payload)
    return log.events


def test_a_child_continues_before_its_pause_or_its_end() -> None:
    begun = log_of(ev.RunStart("w"), ev.RunPaused(reason="budget"), ev.RunParked(["x"]))
    assert find_continue_place("child", begun) == 1
    assert find_continue_place("child", begun[:1]) == 1
    assert find_continue_place("child", log_of(ev.RunStart("w"), ev.RunEnd("completed"))) == 1
    cancelled = log_of(ev.RunStart("w"), ev.RunParked(["x"]), ev.CancelRequested("enough"))
    assert find_continue_place("child", cancelled) == 2
    quarantined = log_of(ev.RunStart("w"), ev.RunQuarantined("log.unreadable", 7, "cb.x", "no event"))
    with pytest.raises(NowhereToFork, match=r"log\.unreadable"):
        find_continue_place("child", quarantined)
