"""Forks with other variables: set behind an event, seen from the next node on, in every language that has some."""

import json
from typing import Any

import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.projections.comparison.diff import compare_logs
from callboard.projections.comparison.json_differences import Difference
from callboard.runtime.client.connection import Connection
from callboard.testing.checks import check_replay
from tests.runtime.admission.test_forks import TENANT, events_of, forked, start
from tests.runtime.interpreter.test_golden import replayed
from tests.support.flows import flow, returned
from tests.support.graphs import condition, graph, step, webhook
from tests.support.playbook_cases import A, declared, doc, steps
from tests.surfaces.nats.test_micro_service import Caller
from tests.surfaces.nats.test_micro_service import caller as caller  # the fixtures
from tests.surfaces.nats.test_micro_service import connection as connection

FLOW = flow(
    {
        "set": {"action": "Pass", "next": "look", "assign": {"who": "Ada"}},
        "look": {"action": "Pass", "next": "done"},
        "done": returned("{{ vars.who }}"),
    }
)
GRAPH = graph([webhook(), step("a"), condition("i", "variables.go")], "t -> a", "a -> i", variables={"go": False})
PLAYBOOK = doc(declared(A), steps("Do {{a}}.", "Tell {{a}}.", "Show {{a}}."))
SAID = {"turns": {number: [{"text": f"said {number}"}] for number in "123"}}


def told(events: list[Any], path: str) -> str:
    """What a node's model was asked."""
    return next(bytes(event.payload).decode() for event in events if event.type == "model.call" and event.path == path)


async def test_a_variable_of_a_flow_is_set(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(definition={"source": json.dumps(FLOW)}, script=None, model=None)
    fork, result = await forked(caller, origin, **{"from": "look"}, variables={"who": "Grace"})
    assert (await caller.ask("result", {"run_id": origin}))["output"] == "Ada"
    assert result["output"] == "Grace"
    # The fork of a fork has it too, from where that was; and what is set later counts.
    second, result = await forked(caller, fork, **{"from": "done"})
    assert result["output"] == "Grace"
    third, result = await forked(caller, fork, **{"from": "done"}, variables={"who": "Joan"})
    assert result["output"] == "Joan"
    for run in (fork, second, third):
        events = await events_of(connection, run)
        check_replay(language, RunRef(TENANT, run), events)
        # Wherever a worker dies, the next one sets them where this one did.
        parted = json.loads(bytes(events[0].payload))["forked_from"]["n"]
        for n in range(parted, len(events)):
            rest = [_stated(event) for event in events[n:]]
            assert all(_stated(event) in rest for event in replayed(events[:n])), f"after event {n}"
    before = next(event.n for event in await events_of(connection, origin) if event.path.endswith("look")) - 1
    # Looked at as it was before, it has them not yet.
    earlier = replayed((await events_of(connection, fork))[: before - 1])
    assert [
        bytes(event.payload) for event in earlier if event.type == "run.end" and b"Grace" in bytes(event.payload)
    ] == []
    found = compare_logs(await events_of(connection, origin), await events_of(connection, fork))
    assert Difference("/variables", right={str(before): {"who": "Grace"}}) in found.start
    assert found.output == [Difference("", "Ada", "Grace")]
    # A fork from before that place has it no more.
    _, result = await forked(caller, fork, **{"from": "set"})
    assert result["output"] == "Ada"


async def test_a_variable_of_a_graph_is_set(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(definition={"source": json.dumps(GRAPH)}, input={"body": 1}, script=None, model=None)
    fork, result = await forked(caller, origin, **{"from": "i"}, variables={"go": True})
    assert result["status"] == "completed"
    outputs = [
        next(json.loads(bytes(event.payload)) for event in await events_of(connection, run) if _left(event, "i"))
        for run in (origin, fork)
    ]
    assert outputs[0]["result"] != outputs[1]["result"]
    check_replay(language, RunRef(TENANT, fork), await events_of(connection, fork))


def _stated(event: Any) -> tuple[str, str, bytes]:
    return event.type, event.key or event.path, bytes(event.payload)


def _left(event: Any, path: str) -> bool:
    return event.type == "node.exit" and event.path == path


@pytest.mark.parametrize("name", ["a", "s"], ids=["an input", "another name"])
async def test_a_name_of_a_playbook_is_given_another_value(connection: Connection, caller: Caller, name: str) -> None:
    source = PLAYBOOK.replace("Show {{a}}.", "Show {{a}} {{s}}.") if name == "s" else PLAYBOOK
    origin = await caller.finished(definition={"source": source}, input={"a": "one"}, script=SAID, model="scripted")
    fork, result = await forked(caller, origin, **{"from": "3"}, variables={name: "another"})
    assert result["status"] == "completed"
    events = await events_of(connection, fork)
    assert "another" in told(events, "3")
    assert "another" not in told(events, "2")
    assert "another" not in told(await events_of(connection, origin), "3")
    check_replay(language, RunRef(TENANT, fork), events)


async def test_where_a_language_has_no_variables_it_is_said(caller: Caller) -> None:
    origin = await caller.finished(**start())
    error = await caller.refused("fork", {"run_id": origin, "from": "b", "variables": {"x": 1}})
    (problem,) = error["problems"]
    assert (problem["code"], problem["where"]) == ("fork.variables", "fork.variables")
    assert problem["message"] == "a workflow has no variables"
    assert "flow, graph, playbook" in problem["expected"]
