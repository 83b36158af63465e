"""Tables of flows and their Results: inputs and outputs of flows and calls.

Results are compared by the rules of the public conformance corpus.
"""

from typing import Any

import pytest

from tests.support.flow_cases import (
    FAULT,
    INVALID,
    UNKNOWN,
    Case,
    bad,
    handling,
    ok,
    one_step,
    parameters,
    passed,
    play,
    raising,
)
from tests.support.flows import call, failing, flow, mock, returned

# -- basics ------------------------------------------------------------------------------------------------------------

SLEEP_AND_TELL = {
    "s": {"action": "Sleep", "next": "done"},
    "done": returned("{{ string(timestamp(step.metadata.enteredAt) - timestamp(execution.metadata.enteredAt)) }}"),
}


def sleeping(**moment: Any) -> dict[str, Any]:
    return flow({**SLEEP_AND_TELL, "s": {**SLEEP_AND_TELL["s"], **moment}})


BASICS = {
    "expressions are evaluated at every leaf and not in keys": Case(
        flow({"r": returned({"{{ step.input }}": ["{{ step.input }}", " {{ step.input }}", {"n": None}]})}),
        ok({"{{ step.input }}": [7, " {{ step.input }}", {"n": None}]}),
        7,
    ),
    "a Return of null returns null": Case(flow({"r": {"action": "Return", "value": None}}), ok(None), "in"),
    "an output of null replaces the value": Case(one_step(passed(output=None)), ok(None), "in"),
    "output is shaped before the assignments": Case(
        one_step(passed(output="{{ vars.a }}", assign={"a": 2}), then="{{ [step.input, vars.a] }}", **parameters(a=1)),
        ok([1, 2]),
    ),
    "the assignments of a block do not see each other": Case(
        one_step(passed(assign={"a": "{{ vars.b }}", "b": "{{ vars.a }}"}), then="{{ vars }}", **parameters(a=1, b=2)),
        ok({"a": 2, "b": 1}),
    ),
    "an assignment keeps the type, also of null": Case(
        one_step(passed(assign={"a": "{{ step.input }}", "b": [1, "{{ null }}"]}), then="{{ vars }}"),
        ok({"a": {"x": 5}, "b": [1, None]}),
        {"x": 5.0},
    ),
    "a sleep for a week": Case(sleeping(**{"for": "P1W"}), ok("604800s")),
    "a sleep for half a second": Case(sleeping(**{"for": "PT0.5S"}), ok("0.5s")),
    "a sleep for a computed duration": Case(
        sleeping(**{"for": "{{ durationToIso8601(durationFromIso8601('PT1M') + duration('30s')) }}"}), ok("90s")
    ),
    "a sleep until a computed instant": Case(
        sleeping(until="{{ string(timestamp(frame.metadata.enteredAt) + duration('2h')) }}"), ok("7200s")
    ),
    "a sleep until an instant in another zone": Case(sleeping(until="2026-11-20T14:00:00+02:00"), ok("3600s")),
    "a sleep for an unknown name": Case(sleeping(**{"for": UNKNOWN}), bad(FAULT)),
    "a sleep for a CEL duration": Case(
        sleeping(**{"for": "{{ duration('90s') }}"}), bad("System.UnrepresentableValue")
    ),
    "parameters: an expression in an argument is data": Case(
        flow({"r": returned("{{ vars.a }}")}, **parameters(a="")), ok("{{ 1 }}"), arguments={"a": "{{ 1 }}"}
    ),
    "an expression in the input is data": Case(flow({"r": returned()}), ok("{{ 1 }}"), "{{ 1 }}"),
}


# -- calls -------------------------------------------------------------------------------------------------------------

BOTH_ARMS = {"onSuccess": {"assign": {"arm": "success"}}, "onFailure": {"assign": {"arm": "{{ call.result.code }}"}}}

CALLS = {
    "input: null replaces the input": Case(one_step(call({**mock(), "input": None})), ok(None), "in"),
    "input: shaped by the step and then by the call": Case(
        one_step(call({**mock(), "input": "{{ call.input + ['call'] }}"}, input="{{ step.input + ['step'] }}")),
        ok(["in", "step", "call"]),
        ["in"],
    ),
    "value: the mock returns null": Case(one_step(call(mock(value=None))), ok(None), "in"),
    "value: an arm may write null": Case(one_step(call({**mock(), "onSuccess": {"value": None}})), ok(None), "in"),
    "value: shaped by the arm and then by the step": Case(
        one_step(
            call(
                {**mock(value=[1]), "onSuccess": {"value": "{{ call.result.value + [2] }}"}},
                output="{{ step.result.value + [3] }}",
            )
        ),
        ok([1, 2, 3]),
    ),
    "value: an arm reads the variables as before its assignments": Case(
        one_step(
            call({**mock(), "onSuccess": {"value": "{{ vars.a }}", "assign": {"a": 2}}}),
            then="{{ [step.input, vars.a] }}",
            **parameters(a=1),
        ),
        ok([1, 2]),
    ),
    "arms: the step's output reads their assignments": Case(
        one_step(call({**mock(value=1), "onSuccess": {"assign": {"a": "{{ call.result }}"}}}, output="{{ vars.a }}")),
        ok({"type": "success", "value": 1}),
    ),
    "arms: the clause reads the assignment of the failure arm": Case(
        handling({**failing("X"), **BOTH_ARMS}, returned(), clause={"output": "{{ vars.arm }}"}), ok("X")
    ),
    "arms: a value that looks like a failure takes the success arm": Case(
        one_step(call({**mock(value={"type": "error", "code": "X"}), **BOTH_ARMS}), then="{{ vars.arm }}"),
        ok("success"),
    ),
    "arms: the window of a provider without metadata": Case(
        one_step(call({**mock(), "onSuccess": {"value": "{{ provider.metadata }}"}})), ok({})
    ),
    "arms: a provider call cannot read flow": Case(
        one_step(call({**mock(), "onSuccess": {"value": "{{ flow }}"}})), bad(FAULT)
    ),
    "arms: a fault in the failure arm displaces the failure": Case(
        handling({**failing("X"), "onFailure": {"assign": {"a": UNKNOWN}}}, raising()),
        bad(FAULT, previous={"type": "error", "code": "X", "previous": None}),
    ),
    "arms: a fault in the success arm displaces nothing": Case(
        handling({**mock(value=1), "onSuccess": {"assign": {"a": UNKNOWN}}}, raising()), bad(FAULT, previous=None)
    ),
    "arms: a block that faults assigns nothing": Case(
        handling({**mock(), "onSuccess": {"assign": {"a": 1, "b": UNKNOWN}}}, returned("{{ has(vars.a) }}")), ok(False)
    ),
    "mock: a failure of null is a success": Case(one_step(call(mock(failure="{{ null }}", value=1))), ok(1)),
    "mock: a failure takes precedence over a value": Case(
        one_step(call(mock(failure={"code": "X"}, value=1))), bad("X", previous=None)
    ),
    "mock: an empty failure": Case(one_step(call(mock(failure={}))), bad(INVALID)),
    "mock: a failure that is a success": Case(
        one_step(call(mock(failure={"code": "X", "type": "success"}))), bad(INVALID)
    ),
    "mock: a failure with an unknown member": Case(
        one_step(call(mock(failure={"code": "X", "more": 1}))), bad(INVALID)
    ),
    "mock: the failure has exactly the configured members": Case(
        handling(
            mock(
                failure={
                    "type": "Mine",
                    "code": "X",
                    "message": "m",
                    "details": [1],
                    "retryable": None,
                    "previous": None,
                }
            ),
            returned("{{ failure }}"),
        ),
        ok({"type": "Mine", "code": "X", "message": "m", "details": [1], "retryable": None, "previous": None}),
    ),
    "mock: a previous of any shape": Case(
        handling(mock(failure={"code": "X", "previous": {"a": 1}}), returned("{{ failure.previous }}")), ok({"a": 1})
    ),
    "mock: a delay that is not a duration": Case(one_step(call(mock(delay="soon"))), bad(INVALID)),
    "mock: a negative delay": Case(one_step(call(mock(delay="-PT5S", value=1))), ok(1)),
    "mock: metadata that is not an object": Case(one_step(call(mock(metadata="{{ [1] }}"))), bad(INVALID)),
    "with: each field is evaluated with its type": Case(
        one_step(call(mock(value={"a": ["{{ call.input }}"]}))), ok({"a": [5]}), 5
    ),
    "with: a validation failure can be caught": Case(
        handling(mock(bogus=1), returned("{{ [failure.code, failure.type] }}")), ok([INVALID, "error"])
    ),
    "with: a fault is the call's failure": Case(
        handling(mock(value=UNKNOWN), returned("{{ failure.code }}")), ok(FAULT)
    ),
}


@pytest.mark.parametrize("name", BASICS)
def test_basics(name: str) -> None:
    play(BASICS[name])


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    play(CALLS[name])
