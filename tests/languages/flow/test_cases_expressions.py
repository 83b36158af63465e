"""Tables of expressions and their values in a flow: the embedding, data, bindings; `tests/languages/cel` has the rest.

Each expression is the value of a Return; the input is `DATA`.
"""

from typing import Any

import pytest

from callboard.languages.flow.authoring import same
from tests.support.flow_cases import FAULT, Case, bad, ok, play
from tests.support.flows import flow, perform, returned

UNREPRESENTABLE = "System.UnrepresentableValue"

DATA = {
    "n": 5,
    "half": 2.5,
    "big": 9007199254740993,
    "list": [3, 1, 2],
    "text": "Ünï",
    "none": None,
    "deep": {"a": [{"b": 1}]},
    "o-o": 1,
}

VALUES: dict[str, Any] = {
    # the embedding
    "{{step.input.n}}": 5,
    "{{\n\tstep.input.n\n}}": 5,
    "{{ '}}' }}": "}}",
    "{{ '{{ }}' }}": "{{ }}",
    "{{ {'a': {'b': 1}}}}": {"a": {"b": 1}},
    "{{ '{{' }} and {{ '}}' }}": "{{ '{{' }} and {{ '}}' }}",
    "{{ step.input.n }} ": "{{ step.input.n }} ",
    " {{ step.input.n }}": " {{ step.input.n }}",
    "x{{ step.input.n }}": "x{{ step.input.n }}",
    "{{ step.input.n }": "{{ step.input.n }",
    "{ { step.input.n } }": "{ { step.input.n } }",
    "{{ 1 // a comment }}\n}}": 1,
    # the data of a step, and the clock of a run
    "{{ step.input.n + 1.0 }}": 6,
    "{{ step.input.list[1.0] }}": 1,
    "{{ type(step.input.n) == double }}": True,
    "{{ has(step.input.n) && !has(step.input.m) }}": True,
    "{{ has(step.input.none) }}": True,
    "{{ step.input['o-o'] }}": 1,
    "{{ step.input.deep.a[0].b }}": 1,
    "{{ size(step.input.text) }}": 3,
    "{{ step.input.list.map(x, x * 2.0) }}": [6, 2, 4],
    "{{ toJson(step.input.list) }}": "[3,1,2]",
    "{{ fromJson(toJson(step.input.deep)) == step.input.deep }}": True,
    "{{ now() == now() && string(now()) == step.metadata.enteredAt }}": True,
    "{{ wallTime() >= now() }}": True,
    # bindings of every place
    "{{ [execution.platform, has(execution.metadata.exitedAt), type(execution.id) == string] }}": [{}, False, True],
    "{{ execution.metadata.enteredAt == frame.metadata.enteredAt }}": True,
    "{{ failure }}": None,
    "{{ vars }}": {},
    "{{ [step.name, step.action, has(step.metadata.exitedAt)] }}": ["r", "Return", False],
    "{{ frame.input == step.input }}": True,
}

FAILURES: dict[str, str] = {
    "{{ step.input.m }}": FAULT,
    "{{ vars.m }}": FAULT,
    "{{ nothing }}": FAULT,
    "{{ call.input }}": FAULT,
    "{{ match.input }}": FAULT,
    "{{ middleware.input }}": FAULT,
    "{{ step.result }}": FAULT,
    "{{ step.results }}": FAULT,
    "{{ frame.vars }}": FAULT,
    "{{ failure.code }}": FAULT,
    "{{ 1 + step.input.n }}": FAULT,
    "{{ 5 / 0 }}": FAULT,
    "{{ unknown(1) }}": FAULT,
    "{{ 5.0 / 0.0 }}": UNREPRESENTABLE,
    "{{ -5.0 / 0.0 }}": UNREPRESENTABLE,
    "{{ 9007199254740993 }}": UNREPRESENTABLE,
    "{{ {'a': [9007199254740993]} }}": UNREPRESENTABLE,
    "{{ now() }}": UNREPRESENTABLE,
    "{{ {1: 'a'} }}": UNREPRESENTABLE,
    "{{ int }}": UNREPRESENTABLE,
}


def test_values() -> None:
    """Every expression is a leaf of one Return."""
    found: Any = perform(flow({"r": returned(list(VALUES))}), DATA).value
    wrong = {source: value for source, value in zip(VALUES, found, strict=True) if not same(VALUES[source], value)}
    assert not wrong


@pytest.mark.parametrize("source", FAILURES)
def test_failures(source: str) -> None:
    play(Case(flow({"r": returned([source])}), bad(FAILURES[source], previous=None), DATA))


def test_data_without_expressions_is_passed_on_unchanged() -> None:
    """The data has an integer that no double holds, and a text that looks like an expression."""
    data = {**DATA, "text": "{{ 1 }}", "{{ 1 }}": [1e300, -0.0, 5.0, True, ""]}
    done = play(Case(flow({"p": {"action": "Pass", "next": "r"}, "r": returned()}), ok(data), data))
    assert str(done.result["value"]["big"]) == "9007199254740993"
