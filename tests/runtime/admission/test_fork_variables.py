"""Forks with other variables: they apply from the next node on, in every language that has variables."""

import json
from typing import Any

import pytest

from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.projections.comparison.diff import compare_logs
from callboard.projections.comparison.json_differences import Difference
from callboard.runtime.client.connection import Connection
from callboard.testing.checks import check_replay
from tests.runtime.admission.test_forks import TENANT, events_of, fork_run, start
from tests.runtime.interpreter.test_golden import replayed
from tests.support.flows import flow, returned
from tests.support.graphs import condition, graph, step, webhook
from tests.support.playbook_cases import A, declared, doc, steps
from tests.surfaces.nats.test_micro_service import Caller
from tests.surfaces.nats.test_micro_service import caller as caller  # fixtures
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


def first_model_call(events: list[Any], path: str) -> str:
    """The first request of a node to its model."""
    return next(bytes(event.payload).decode() for event in events if event.type == "model.call" and event.path == path)


async def test_a_fork_of_a_flow_has_the_new_variable(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(definition={"source": json.dumps(FLOW)}, script=None, model=None)
    fork, result = await fork_run(caller, origin, **{"from": "look"}, variables={"who": "Grace"})
    assert (await caller.ask("result", {"run_id": origin}))["output"] == "Ada"
    assert result["output"] == "Grace"
    # A fork of the fork has the variable too, unless it sets another value.
    second, result = await fork_run(caller, fork, **{"from": "done"})
    assert result["output"] == "Grace"
    third, result = await fork_run(caller, fork, **{"from": "done"}, variables={"who": "Joan"})
    assert result["output"] == "Joan"
    for run in (fork, second, third):
        events = await events_of(connection, run)
        check_replay(language, RunRef(TENANT, run), events)
        # A worker that takes over after any event sets the variables at the same place.
        parted = json.loads(bytes(events[0].payload))["forked_from"]["n"]
        for n in range(parted, len(events)):
            rest = [content_of(event) for event in events[n:]]
            assert all(content_of(event) in rest for event in replayed(events[:n])), f"after event {n}"
    before = next(event.n for event in await events_of(connection, origin) if event.path.endswith("look")) - 1
    # A replay of the shared events does not have the variables.
    earlier = replayed((await events_of(connection, fork))[: before - 1])
    assert [
        bytes(event.payload) for event in earlier if event.type == "run.end" and b"Grace" in bytes(event.payload)
    ] == []
    found = compare_logs(await events_of(connection, origin), await events_of(connection, fork))
    assert Difference("/variables", right={str(before): {"who": "Grace"}}) in found.start
    assert found.output == [Difference("", "Ada", "Grace")]
    # A fork of the fork from an earlier node does not have the variable.
    _, result = await fork_run(caller, fork, **{"from": "set"})
    assert result["output"] == "Ada"


async def test_a_fork_of_a_graph_has_the_new_variable(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished(definition={"source": json.dumps(GRAPH)}, input={"body": 1}, script=None, model=None)
    fork, result = await fork_run(caller, origin, **{"from": "i"}, variables={"go": True})
    assert result["status"] == "completed"
    outputs = [
        next(json.loads(bytes(event.payload)) for event in await events_of(connection, run) if is_exit_of(event, "i"))
        for run in (origin, fork)
    ]
    assert outputs[0]["result"] != outputs[1]["result"]
    check_replay(language, RunRef(TENANT, fork), await events_of(connection, fork))


def content_of(event: Any) -> tuple[str, str, bytes]:
    return event.type, event.key or event.path, bytes(event.payload)


def is_exit_of(event: Any, path: str) -> bool:
    return event.type == "node.exit" and event.path == path


@pytest.mark.parametrize("name", ["a", "s"], ids=["an input", "another name"])
async def test_a_fork_of_a_playbook_has_the_new_value_of_a_name(
    connection: Connection, caller: Caller, name: str
) -> None:
    source = PLAYBOOK.replace("Show {{a}}.", "Show {{a}} {{s}}.") if name == "s" else PLAYBOOK
    origin = await caller.finished(definition={"source": source}, input={"a": "one"}, script=SAID, model="scripted")
    fork, result = await fork_run(caller, origin, **{"from": "3"}, variables={name: "another"})
    assert result["status"] == "completed"
    events = await events_of(connection, fork)
    assert "another" in first_model_call(events, "3")
    assert "another" not in first_model_call(events, "2")
    assert "another" not in first_model_call(await events_of(connection, origin), "3")
    check_replay(language, RunRef(TENANT, fork), events)


async def test_variables_for_a_language_without_variables_are_refused(caller: Caller) -> None:
    origin = await caller.finished(**start())
    error = await caller.refused("fork", {"run_id": origin, "from": "b", "variables": {"x": 1}})
    (problem,) = error["problems"]
    assert (problem["code"], problem["where"]) == ("fork.variables", "fork.variables")
    assert problem["message"] == "a workflow has no variables"
    assert "flow, graph, playbook" in problem["expected"]
