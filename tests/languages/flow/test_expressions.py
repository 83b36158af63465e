"""Problems in the expressions of a flow: those that are not CEL, and those that read unknown bindings."""

import pytest

from callboard.languages.flow.specified_providers import FINALLY
from tests.support.flow_documents import OWN_CALL, Json, codes_of, flow, inner, problems_of


def test_an_expression_that_is_not_cel_is_an_error_with_its_place() -> None:
    [problem] = problems_of(flow({"a": {"action": "Return", "value": {"x": ["{{ 1 +\n * 2 }}"]}}}))
    assert (problem.code, problem.where, problem.severity) == ("EXPRESSION", "steps.a.value.x[0]", "error")
    assert "at line 2, column 2 of the expression" in problem.message


@pytest.mark.parametrize("text", ["{{ a }} and {{ b }}", " {{ a }}", "{{ a }"])
def test_a_literal_that_looks_like_an_expression_is_a_warning(text: str) -> None:
    assert codes_of(flow({"a": {"action": "Return", "value": [text]}})) == [("HALF_EXPRESSION?", "steps.a.value[0]")]


def test_a_function_that_does_not_exist_is_a_warning() -> None:
    assert codes_of(flow({"a": {"action": "Return", "value": "{{ later(1) }}"}})) == [
        ("UNKNOWN_FUNCTION?", "steps.a.value")
    ]


def flow_with_expression(expression: str) -> Json:
    """A flow with an expression at one place of every kind; the names of the places are in `PLACES`."""
    arm = {"value": expression, "assign": {"v": expression}}
    phases = {
        "onEntry": {"when": False, "output": expression},
        "onSuccess": {"value": expression},
        "onFailure": {"message": expression},
        "onAlways": {"assign": {"v": expression}},
    }
    cleanup = {"call": {"provider": OWN_CALL, "input": expression, "onFailure": {"assign": {"v": expression}}}}
    finally_ = {"provider": FINALLY, "onAlways": {"with": cleanup}}
    guard = "mwl:provider.middleware/acme/watch/v1"
    steps: Json = {
        "c": {
            "action": "Call",
            "input": expression,
            "call": {"provider": OWN_CALL, "input": expression, "onSuccess": arm},
            "middleware": [{"provider": guard, **phases}, finally_],
            "output": expression,
            "catch": [{"match": {"codes": ["*"]}, "output": expression, "next": "g"}],
            "next": "g",
        },
        "g": {
            "action": "Gather",
            "over": expression,
            "call": {"flow": inner(), "input": expression, "onFailure": {"assign": {"v": expression}}},
            "completion": {"successes": expression},
            "output": expression,
            "next": "m",
        },
        "m": {
            "action": "Match",
            "input": expression,
            "cases": [{"when": expression, "next": "r"}],
            "default": {"output": expression, "next": "r"},
        },
        "r": {"action": "Raise", "result": {"code": "A", "details": expression}},
    }
    return flow(steps, middleware=[{"provider": guard, **phases}, finally_])


STACK = {
    "in": "onEntry.output",
    "up": "onSuccess.value",
    "down": "onFailure.message",
    "out": "onAlways.assign.v",
    "tidy": "with.call.input",
    "tidied": "with.call.onFailure.assign.v",
}
PLACES = {
    **{name: f"steps.c.middleware[0].{path}" for name, path in list(STACK.items())[:4]},
    **{name: f"steps.c.middleware[1].onAlways.{path}" for name, path in list(STACK.items())[4:]},
    **{f"flow {name}": f"middleware[0].{path}" for name, path in list(STACK.items())[:4]},
    **{f"flow {name}": f"middleware[1].onAlways.{path}" for name, path in list(STACK.items())[4:]},
    "c.input": "steps.c.input",
    "c.output": "steps.c.output",
    "c.catch": "steps.c.catch[0].output",
    "call": "steps.c.call.input",
    "arm": "steps.c.call.onSuccess.value",
    "arm's assign": "steps.c.call.onSuccess.assign.v",
    "g.over": "steps.g.over",
    "g.successes": "steps.g.completion.successes",
    "g.output": "steps.g.output",
    "gathered": "steps.g.call.input",
    "gathered arm": "steps.g.call.onFailure.assign.v",
    "m.input": "steps.m.input",
    "case": "steps.m.cases[0].when",
    "default": "steps.m.default.output",
    "r": "steps.r.result.details",
}

IN_STEP = {name for name in PLACES if not name.startswith("flow ")}
CALLS = {"call", "arm", "arm's assign", "gathered", "gathered arm", "tidy", "tidied", "flow tidy", "flow tidied"}
ARMS = {"arm", "arm's assign", "gathered arm", "tidied", "flow tidied"}
PHASES_ = {name for name in PLACES if name.removeprefix("flow ") in STACK}


@pytest.mark.parametrize(
    ("expression", "places"),
    [
        ("vars.v", set(PLACES)),
        ("execution.id", set(PLACES)),
        ("execution.start", set[str]()),
        ("frame.metadata.enteredAt", set(PLACES)),
        ("frame.result", set[str]()),
        ("failure.previous.code", set(PLACES)),
        ("step.input", IN_STEP),
        ("step.result.value", {"c.output", "c.catch"}),
        ("step.results[0]", {"g.output"}),
        ("step.output", set[str]()),
        ("call.input", CALLS),
        ("call.index", {"gathered", "gathered arm"}),
        ("call.result", ARMS),
        ("provider.metadata.x", ARMS - {"gathered arm"}),
        ("flow.vars.x", {"gathered arm"}),
        ("match.input", {"case", "default"}),
        ("middleware.input", PHASES_),
        ("middleware.result.value", PHASES_ - {"in", "flow in"}),
        ("vars['v'] + [1].map(step, step.mine)", set(PLACES)),
        ("has(step.nothing) ? step.nothing : 1", IN_STEP),
        ("workflow", set[str]()),
    ],
)
def test_bindings_are_in_scope_as_specified(expression: str, places: set[str]) -> None:
    refused = {
        problem.where
        for problem in problems_of(flow_with_expression("{{ " + expression + " }}"))
        if problem.code == "UNKNOWN_BINDING"
    }
    assert {name for name, where in PLACES.items() if where not in refused} == places
    assert refused <= set(PLACES.values())


def test_a_binding_out_of_scope_is_a_warning() -> None:
    assert all(
        problem.severity == "warning" for problem in problems_of(flow_with_expression("{{ nonsense.x + vars.y }}"))
    )


@pytest.mark.parametrize(
    ("parameters", "known"),
    [
        (None, False),
        ({"type": "object", "properties": {"count": {}}}, True),
        ({"type": "object", "additionalProperties": True}, True),
        ({"type": "object", "properties": {"other": {}}}, False),
    ],
)
def test_a_variable_is_declared_assigned_or_unknown(parameters: Json | None, known: bool) -> None:
    more = {} if parameters is None else {"parameters": parameters}
    document = flow({"a": {"action": "Return", "value": "{{ vars.count }}"}}, **more)
    assert codes_of(document) == ([] if known else [("UNKNOWN_VARIABLE?", "steps.a.value")])
    assigning = {
        "a": {"action": "Pass", "assign": {"count": 1}, "next": "b"},
        "b": {"action": "Return", "value": "{{ vars.count }}"},
    }
    assert codes_of(flow(assigning, **more)) == []
