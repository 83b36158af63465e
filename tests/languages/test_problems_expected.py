"""Problems of definitions and starts name the expected value."""

import json
from typing import Any

import pytest

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.languages.plan import Definition
from callboard.languages.registry import language
from tests.support.flows import flow, returned
from tests.support.graphs import graph, step
from tests.support.workflows import document

PLAYBOOK = "# T\n\n## STEP 1: a\n\nb\n"
SOUND = {
    "flow": json.dumps(flow({"done": returned(1)})),
    "graph": json.dumps(graph([step("a")], triggers=[])),
    "workflow": json.dumps(document({"a": {}})),
}
BROKEN = [
    ("graph", json.dumps(graph([step("a"), step("a")], triggers=[]))),
    ("graph", "metadata: {id: g}\nnodes: [\x07]"),
    ("graph", "[" * 2_000),
    ("playbook", PLAYBOOK.removeprefix("# T")),
    ("playbook", PLAYBOOK + "x" * 200_000),
    ("playbook", PLAYBOOK + "\n## INPUTS\n\n- `a` (string)\n- `a` (string)\n"),
]


def require_problems(problems: Any) -> list[Problem]:
    assert isinstance(problems, list)
    return problems


@pytest.mark.parametrize(("name", "source"), BROKEN)
def test_a_problem_of_a_definition_has_an_expected_value(name: str, source: str) -> None:
    problems = require_problems(language(name).parse(source))
    assert [problem.message for problem in problems if not problem.expected] == []


@pytest.mark.parametrize("name", SOUND)
def test_a_language_without_states_refuses_a_state(name: str) -> None:
    definition = language(name).parse(SOUND[name])
    assert isinstance(definition, Definition)
    start = StartRun(DefinitionSource(name), state={})
    [problem] = require_problems(language(name).admit(definition, start))
    assert (problem.where, problem.expected) == ("state", "none; a fork goes on")
