"""The interpreter of experiments: which effects and child runs it asks for, and what deaths of its worker change."""

import json
from typing import Any

import pytest

from callboard.actors.carrier import EffectFailed
from callboard.bus.effects import Failure
from callboard.bus.events import NodeExit, Problem
from callboard.languages.registry import parse_definition
from callboard.testing import Scenario
from tests.support.workdir import ONE_NODE

CASES = ["same", "other", "broken", "skipped"]

CHILD = {
    "definition": {"source": ONE_NODE},
    "model": "scripted",
    "script": {"turns": {"a": [{"text": "done"}]}},
    "input": None,
}


def carry(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out an effect of the kind `case`, as a worker would for these cases."""
    match request["do"], request["case"]:
        case "replay", "same":
            return {"verdict": "identical"}
        case "replay", "skipped":
            return {"verdict": "skipped", "error": {"code": "key.missing", "message": "no key"}}
        case "replay", "broken":
            raise EffectFailed(Failure("run.unknown", "it was purged"))
        case "replay", _:
            return {"verdict": "differs", "place": 3, "start": CHILD}
        case "answer", _:
            return {"answers": 0}
        case _:
            return {"verdict": "regressed", "changes": []}


def document(**more: Any) -> str:
    return json.dumps({"dataset": "d", "version": 1, "cases": CASES, "candidates": {"new": {}}, **more})


def rows(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """The results of the cases, by case."""
    exits = [one for one in scenario.payloads("node.exit") if isinstance(one, NodeExit)]
    return {one.result["case"]: one.result for one in exits if isinstance(one.result, dict)}


@pytest.fixture
def experiment() -> Any:
    with Scenario(effects={"case": carry}) as scenario:
        yield scenario


def test_each_case_has_a_row_and_only_one_that_differs_is_performed(experiment: Scenario) -> None:
    experiment.start(source=document())
    assert experiment.result.output == {"failed": 1, "identical": 1, "regressed": 1, "skipped": 1}
    found = rows(experiment)
    assert found["broken"]["error"] == {"code": "run.unknown", "message": "it was purged"}
    assert found["skipped"]["error"]["code"] == "key.missing"
    assert len(experiment.children) == 1


def test_each_repetition_is_performed(experiment: Scenario) -> None:
    experiment.start(source=document(cases=["other"], repeat=3, candidates={"new": {}, "old": {}}))
    assert experiment.result.output == {"regressed": 6}
    assert len(experiment.children) == 6


def test_a_death_at_any_event_neither_doubles_nor_loses_a_case(experiment: Scenario) -> None:
    experiment.start(source=document())
    experiment.crash_everywhere(lambda scenario: (rows(scenario), sorted(scenario.children)))


@pytest.mark.parametrize(
    "wrong", [{"cases": 7}, {"candidates": {"new": {"tools": 1}}}, {"repeat": "often"}, {"unknown": True}]
)
def test_a_document_that_is_no_experiment_is_refused(wrong: dict[str, Any]) -> None:
    found = parse_definition(document(**wrong))
    assert isinstance(found, list)
    assert all(isinstance(one, Problem) for one in found)
