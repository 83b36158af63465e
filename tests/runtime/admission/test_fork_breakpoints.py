"""Breakpoints of forks: they apply after the events that a fork shares with its origin."""

import json
from typing import Any

from callboard.bus.events import Event, ForkedFrom, RunAccepted, RunPaused, payload_of
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.runtime.client.connection import Connection
from callboard.testing.checks import check_replay
from tests.runtime.admission.test_forks import TENANT, events_of
from tests.runtime.interpreter.test_golden import replayed
from tests.support.patience import until
from tests.support.playbook_cases import doc, steps
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.service_client import caller as caller  # fixtures
from tests.support.service_client import connection as connection
from tests.support.workflows import document as workflow

LOOP: dict[str, Any] = {
    "definition": {
        "source": json.dumps(
            workflow(
                {"a": {}, "b": {}, "c": {}},
                [("a", "b", "more"), ("a", "c", "enough"), {"from": "b", "to": "a", "max_iterations": 5}],
            )
        )
    },
    "script": {"routes": {"a": ["b", "b", "c"]}, "default": {"text": "ok"}},
}
PLAYBOOK: dict[str, Any] = {
    "definition": {"source": doc(steps("one", "two", "three"))},
    "script": {"default": {"text": "ok"}},
}


async def resume_to_the_end(caller: Caller, run: str, times: int) -> None:
    """Resume a run at each of its next breakpoints, then wait for its end."""
    for _ in range(times):

        async def is_paused() -> bool:
            return (await caller.ask("show", {"run_id": run}))["status"] == "paused"

        await until(is_paused)
        verdict = await caller.ask("tell", {"run_id": run, "verb": "resume", "wait_s": PATIENCE_S})
        assert verdict["status"] == "accepted", verdict
    assert (await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))["status"] == "completed"


async def fork_at(caller: Caller, run: str, node: str, *breakpoints: str) -> str:
    verdict = await caller.ask("fork", {"run_id": run, "from": node, "start": {"breakpoints": breakpoints}})
    assert verdict.get("status") == "accepted", verdict
    return verdict["run_id"]


def paused_nodes(events: list[Event]) -> list[str]:
    """The nodes at which a run has paused."""
    return [payload.step or "" for event in events if isinstance(payload := payload_of(event), RunPaused)]


def origin_of(events: list[Event]) -> ForkedFrom:
    accepted = payload_of(events[0])
    assert isinstance(accepted, RunAccepted)
    assert accepted.forked_from is not None
    return accepted.forked_from


def check_every_replay(run: str, events: list[Event]) -> None:
    """Check that a worker that takes over after any event states the recorded events."""
    check_replay(language, RunRef(TENANT, run), events)
    recorded = [(event.type, event.key or event.path) for event in events]
    for n in range(origin_of(events).n, len(events)):
        again = [(event.type, event.key or event.path) for event in replayed(events[:n])]
        assert all(one in recorded[n:] for one in again), f"after event {n}"


async def test_a_fork_stops_at_its_breakpoints_only_after_the_shared_events(
    connection: Connection, caller: Caller
) -> None:
    origin = await caller.finished(**LOOP)
    fork = await fork_at(caller, origin, "b", "a")
    await resume_to_the_end(caller, fork, 1)
    events = await events_of(connection, fork)
    parted = origin_of(events)
    # The node is entered three times. Only the last of them is after the shared events.
    assert [event.iteration for event in events if event.type == "node.enter" and event.path == "a"] == [1, 2, 3]
    assert paused_nodes(events) == ["a"]
    assert next(event.n for event in events if event.type == "run.paused") > parted.n
    assert parted.breakpoints == {0: [], parted.n: ["a"]}
    check_every_replay(fork, events)

    # The first node after the shared events may be a breakpoint.
    at_once = await fork_at(caller, origin, "c", "c")
    await resume_to_the_end(caller, at_once, 1)
    assert paused_nodes(await events_of(connection, at_once)) == ["c"]


async def test_a_fork_of_a_fork_has_the_breakpoints_of_each_part(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(**LOOP)
    fork = await fork_at(caller, origin, "b#1", "a")
    await resume_to_the_end(caller, fork, 2)
    again = await fork_at(caller, fork, "c", "c")
    await resume_to_the_end(caller, again, 1)
    events = await events_of(connection, again)
    assert paused_nodes(events) == ["a", "a", "c"]
    first, second = origin_of(await events_of(connection, fork)).n, origin_of(events).n
    assert origin_of(events).breakpoints == {0: [], first: ["a"], second: ["c"]}
    check_every_replay(again, events)
    # A fork that shares fewer events than the first fork has its breakpoints from there on.
    earlier = (await caller.ask("fork", {"run_id": fork, "at": first - 1}))["run_id"]
    await resume_to_the_end(caller, earlier, 2)
    assert origin_of(await events_of(connection, earlier)).breakpoints == {0: [], first - 1: ["a"]}


async def test_a_fork_without_other_breakpoints_records_none(connection: Connection, caller: Caller) -> None:
    origin = await caller.start(**LOOP, breakpoints=["c"])
    await resume_to_the_end(caller, origin, 1)
    fork = await fork_at(caller, origin, "b", "c")
    await resume_to_the_end(caller, fork, 1)
    assert origin_of(await events_of(connection, fork)).breakpoints == {}


async def test_breakpoints_of_a_playbook_apply_after_its_steps(connection: Connection, caller: Caller) -> None:
    origin = await caller.start(**PLAYBOOK, breakpoints=["1", "3"])
    await resume_to_the_end(caller, origin, 2)
    fork = await fork_at(caller, origin, "2", "2")
    await resume_to_the_end(caller, fork, 1)
    events = await events_of(connection, fork)
    assert paused_nodes(events) == ["1", "2"]
    check_every_replay(fork, events)


async def test_an_unknown_breakpoint_of_a_fork_is_refused(caller: Caller) -> None:
    origin = await caller.finished(**LOOP)
    error = await caller.refused("fork", {"run_id": origin, "from": "b", "start": {"breakpoints": ["x"]}})
    (problem,) = error["problems"]
    assert (problem["code"], problem["where"]) == ("UNKNOWN_BREAKPOINT", "breakpoints[0]")
