"""The diagram of the executed part of a workflow in Python."""

import json
from collections.abc import Iterator

import pytest

from callboard.projections.drawing.diagram import Diagram
from callboard.projections.drawing.executed import diagram_of
from callboard.testing import Scenario
from tests.support import python_workflows as plays


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with Scenario(call_steps=True) as one:
        yield one


def edges(diagram: Diagram) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in diagram.outline.edges]


def test_equal_tasks_are_one_node_that_leads_to_the_next_step(scenario: Scenario) -> None:
    scenario.start(plays.triage, input={"service": "shop", "urls": ["a", "bb", "ccc"]})
    found = diagram_of(scenario.events)
    assert [(node.id, node.type) for node in found.outline.nodes] == [("task[]/size", "step"), ("ask", "human")]
    assert edges(found) == [("task[]/size", "ask")]
    assert found.entered["task[]/size"] == 3
    assert found.colours == {"task[]/size": "success", "ask": "current"}


def test_named_tasks_are_separate_nodes_and_a_loop_leads_back(scenario: Scenario) -> None:
    scenario.start(plays.grouped, input={"n": 1, "names": ["ada", "bob"]})
    assert edges(diagram_of(scenario.events)) == [("ada/size", "ada/plus_one"), ("bob/size", "bob/plus_one")]
    with Scenario(call_steps=True) as another:
        another.start(plays.counting_signals, input={"total": 3, "each": 3}).signal("item", 1).signal("item", 2)
        found = diagram_of(another.events)
        assert edges(found) == [("signal", "signal")]
        assert (found.taken, found.colours) == ({0: 2}, {"signal": "current"})


def test_a_failed_effect_is_red(scenario: Scenario) -> None:
    scenario.start(plays.retrying, input={"kind": "hopeless"})
    assert diagram_of(scenario.events).colours == {"flaky": "failed"}


WORKFLOW = json.dumps(
    {"id": "w", "name": "W", "entry": "a", "nodes": {"a": {"name": "A", "instruction": "Do it."}}, "edges": []}
)


def test_a_run_of_another_language_is_drawn_as_its_outline(scenario: Scenario) -> None:
    scenario.start(source=WORKFLOW, script={"default": {"text": "ok"}})
    assert [node.id for node in diagram_of(scenario.events).outline.nodes] == ["a"]


def test_a_run_that_stops_before_its_only_node_is_drawn_as_its_outline(scenario: Scenario) -> None:
    scenario.start(source=WORKFLOW, script={"default": {"text": "ok"}}, breakpoints=["a"])
    assert scenario.result.status == "paused"
    assert [node.type for node in diagram_of(scenario.events).outline.nodes] == ["node"]
