"""Cases in the manner of a conformance corpus: what comes in and out of flows and calls.

Each is a flow, what comes in, and the Result that the text says it has, compared by the rules of the corpus.
"""

from typing import Any

import pytest

from tests.support.flow_cases import (
    FAULT,
    INVALID,
    UNKNOWN,
    Case,
    bad,
    handled,
    ok,
    parameters,
    passed,
    play,
    raising,
    stepped,
)
from tests.support.flows import (
    call,
    failing,
    flow,
    mock,
    returned,
)

# -- basics ------------------------------------------------------------------------------------------------------------

SLEEP_AND_TELL = {
    "s": {"action": "Sleep", "next": "done"},
    "done": returned("{{ string(timestamp(step.metadata.enteredAt) - timestamp(execution.metadata.enteredAt)) }}"),
}


def sleeping(**moment: Any) -> dict[str, Any]:
    return flow({**SLEEP_AND_TELL, "s": {**SLEEP_AND_TELL["s"], **moment}})


BASICS = {
    "a value is evaluated at every leaf and nowhere else": Case(
        flow({"r": returned({"{{ step.input }}": ["{{ step.input }}", " {{ step.input }}", {"n": None}]})}),
        ok({"{{ step.input }}": [7, " {{ step.input }}", {"n": None}]}),
        7,
    ),
    "a value that is null is written": Case(flow({"r": {"action": "Return", "value": None}}), ok(None), "in"),
    "an output that is null is written": Case(stepped(passed(output=None)), ok(None), "in"),
    "output is shaped before the assignments": Case(
        flow(
            {"p": passed(output="{{ vars.a }}", assign={"a": 2}), "done": returned("{{ [step.input, vars.a] }}")},
            **parameters(a=1),
        ),
        ok([1, 2]),
    ),
    "assignments exchange their values": Case(
        flow(
            {"p": passed(assign={"a": "{{ vars.b }}", "b": "{{ vars.a }}"}), "done": returned("{{ vars }}")},
            **parameters(a=1, b=2),
        ),
        ok({"a": 2, "b": 1}),
    ),
    "an assignment keeps the type, null too": Case(
        flow({"p": passed(assign={"a": "{{ step.input }}", "b": [1, "{{ null }}"]}), "done": returned("{{ vars }}")}),
        ok({"a": {"x": 5}, "b": [1, None]}),
        {"x": 5.0},
    ),
    "a sleep of an hour": Case(sleeping(**{"for": "PT1H"}), ok("3600s")),
    "a sleep of weeks": Case(sleeping(**{"for": "P1W"}), ok("604800s")),
    "a sleep of a fraction": Case(sleeping(**{"for": "PT0.5S"}), ok("0.5s")),
    "a sleep of nothing": Case(sleeping(**{"for": "PT0S"}), ok("0s")),
    "a sleep of less than nothing": Case(sleeping(**{"for": "-PT1H"}), ok("0s")),
    "a sleep that is computed": Case(
        sleeping(**{"for": "{{ durationToIso8601(durationFromIso8601('PT1M') + duration('30s')) }}"}), ok("90s")
    ),
    "a sleep until an instant that is computed": Case(
        sleeping(until="{{ string(timestamp(frame.metadata.enteredAt) + duration('2h')) }}"), ok("7200s")
    ),
    "a sleep until an instant in another zone": Case(sleeping(until="2026-11-20T14:00:00+02:00"), ok("3600s")),
    "a duration that CEL writes is none": Case(sleeping(**{"for": "{{ string(duration('90s')) }}"}), bad(INVALID)),
    "a sleep for a timestamp": Case(sleeping(**{"for": "2026-11-20T14:00:00Z"}), bad(INVALID)),
    "a sleep for null": Case(sleeping(**{"for": "{{ null }}"}), bad(INVALID)),
    "a sleep for what is not there": Case(sleeping(**{"for": UNKNOWN}), bad(FAULT)),
    "a sleep for a CEL duration, which is no data": Case(
        sleeping(**{"for": "{{ duration('90s') }}"}), bad("System.UnrepresentableValue")
    ),
    "parameters: a required one is missing": Case(
        flow({"r": returned()}, parameters={"type": "object", "required": ["a"], "properties": {"a": {}}}), bad(INVALID)
    ),
    "parameters: a default does not satisfy required": Case(
        flow({"r": returned()}, parameters={"type": "object", "required": ["a"], "properties": {"a": {"default": 1}}}),
        bad(INVALID),
    ),
    "parameters: null is an argument and takes a default's place": Case(
        flow({"r": returned("{{ vars }}")}, **parameters(a=1)), ok({"a": None}), arguments={"a": None}
    ),
    "parameters: null is no string": Case(
        flow({"r": returned()}, parameters={"type": "object", "properties": {"a": {"type": "string"}}}),
        bad(INVALID),
        arguments={"a": None},
    ),
    "parameters: only the top level is closed": Case(
        flow(
            {"r": returned("{{ vars }}")},
            parameters={"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}},
        ),
        ok({"a": {"c": 1}}),
        arguments={"a": {"c": 1}},
    ),
    "parameters: a nested object may be closed": Case(
        flow(
            {"r": returned()},
            parameters={"type": "object", "properties": {"a": {"type": "object", "additionalProperties": False}}},
        ),
        bad(INVALID),
        arguments={"a": {"c": 1}},
    ),
    "parameters: nested defaults are not filled in": Case(
        flow(
            {"r": returned("{{ vars }}")},
            parameters={"type": "object", "properties": {"a": {"properties": {"b": {"default": 1}}}}},
        ),
        ok({"a": {}}),
        arguments={"a": {}},
    ),
    "parameters: others by a schema": Case(
        flow({"r": returned("{{ vars }}")}, parameters={"type": "object", "additionalProperties": {"type": "number"}}),
        ok({"x": 1}),
        arguments={"x": 1},
    ),
    "parameters: others against a schema": Case(
        flow({"r": returned()}, parameters={"type": "object", "additionalProperties": {"type": "number"}}),
        bad(INVALID),
        arguments={"x": "1"},
    ),
    "parameters: a pattern declares": Case(
        flow({"r": returned("{{ vars }}")}, parameters={"type": "object", "patternProperties": {"^x-": {}}}),
        ok({"x-a": 1}),
        arguments={"x-a": 1},
    ),
    "parameters: an expression in an argument is data": Case(
        flow({"r": returned("{{ vars.a }}")}, **parameters(a="")), ok("{{ 1 }}"), arguments={"a": "{{ 1 }}"}
    ),
    "an expression in the input is data": Case(flow({"r": returned()}), ok("{{ 1 }}"), "{{ 1 }}"),
}


# -- calls -------------------------------------------------------------------------------------------------------------

BOTH_ARMS = {"onSuccess": {"assign": {"arm": "success"}}, "onFailure": {"assign": {"arm": "{{ call.result.code }}"}}}

CALLS = {
    "input: null is written": Case(stepped(call({**mock(), "input": None})), ok(None), "in"),
    "input: shaped by the step and then by the call": Case(
        stepped(call({**mock(), "input": "{{ call.input + ['call'] }}"}, input="{{ step.input + ['step'] }}")),
        ok(["in", "step", "call"]),
        ["in"],
    ),
    "value: null is written": Case(stepped(call(mock(value=None))), ok(None), "in"),
    "value: an arm may write null": Case(stepped(call({**mock(), "onSuccess": {"value": None}})), ok(None), "in"),
    "value: shaped by the arm and then by the step": Case(
        stepped(
            call(
                {**mock(value=[1]), "onSuccess": {"value": "{{ call.result.value + [2] }}"}},
                output="{{ step.result.value + [3] }}",
            )
        ),
        ok([1, 2, 3]),
    ),
    "value: an arm reads the variables as before its assignments": Case(
        flow(
            {
                "s": call({**mock(), "onSuccess": {"value": "{{ vars.a }}", "assign": {"a": 2}}}),
                "done": returned("{{ [step.input, vars.a] }}"),
            },
            **parameters(a=1),
        ),
        ok([1, 2]),
    ),
    "arms: what they assign, the step's tail reads": Case(
        stepped(call({**mock(value=1), "onSuccess": {"assign": {"a": "{{ call.result }}"}}}, output="{{ vars.a }}")),
        ok({"type": "success", "value": 1}),
    ),
    "arms: the failure arm, and the clause that reads what it captured": Case(
        handled({**failing("X"), **BOTH_ARMS}, returned(), clause={"output": "{{ vars.arm }}"}), ok("X")
    ),
    "arms: the success arm when the value is a failure's text": Case(
        flow(
            {"s": call({**mock(value={"type": "error", "code": "X"}), **BOTH_ARMS}), "done": returned("{{ vars.arm }}")}
        ),
        ok("success"),
    ),
    "arms: the window of a provider": Case(
        flow(
            {
                "s": call(
                    {
                        **mock(value=1, metadata={"m": 2}),
                        "input": "{{ call.input + 1.0 }}",
                        "onSuccess": {"value": "{{ provider }}"},
                    }
                ),
                "done": returned(),
            }
        ),
        ok({"input": 2, "result": {"type": "success", "value": 1}, "metadata": {"m": 2}}),
        1,
    ),
    "arms: the window of a provider without metadata": Case(
        stepped(call({**mock(), "onSuccess": {"value": "{{ provider.metadata }}"}})), ok({})
    ),
    "arms: a provider's target has no flow": Case(
        stepped(call({**mock(), "onSuccess": {"value": "{{ flow }}"}})), bad(FAULT)
    ),
    "arms: the failure is not yet the frame's": Case(
        handled(
            {**failing("X"), "onFailure": {"assign": {"seen": "{{ failure == null }}"}}}, returned("{{ vars.seen }}")
        ),
        ok(True),
    ),
    "arms: a fault in the failure arm displaces the failure": Case(
        handled({**failing("X"), "onFailure": {"assign": {"a": UNKNOWN}}}, raising()),
        bad(FAULT, previous={"type": "error", "code": "X", "previous": None}),
    ),
    "arms: a fault in the success arm displaces nothing": Case(
        handled({**mock(value=1), "onSuccess": {"assign": {"a": UNKNOWN}}}, raising()), bad(FAULT, previous=None)
    ),
    "arms: of a faulting block nothing holds": Case(
        handled({**mock(), "onSuccess": {"assign": {"a": 1, "b": UNKNOWN}}}, returned("{{ has(vars.a) }}")),
        ok(False),
    ),
    "mock: a failure of null is none": Case(stepped(call(mock(failure="{{ null }}", value=1))), ok(1)),
    "mock: a failure goes before a value": Case(
        stepped(call(mock(failure={"code": "X"}, value=1))), bad("X", previous=None)
    ),
    "mock: an empty failure": Case(stepped(call(mock(failure={}))), bad(INVALID)),
    "mock: a failure that is a success": Case(
        stepped(call(mock(failure={"code": "X", "type": "success"}))), bad(INVALID)
    ),
    "mock: a failure with more than an envelope has": Case(
        stepped(call(mock(failure={"code": "X", "more": 1}))), bad(INVALID)
    ),
    "mock: an envelope exactly as configured": Case(
        handled(
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
    "mock: a previous of its own, of any shape": Case(
        handled(mock(failure={"code": "X", "previous": {"a": 1}}), returned("{{ failure.previous }}")), ok({"a": 1})
    ),
    "mock: a delay that is none": Case(stepped(call(mock(delay="soon"))), bad(INVALID)),
    "mock: a delay before now": Case(stepped(call(mock(delay="-PT5S", value=1))), ok(1)),
    "mock: metadata that is no object": Case(stepped(call(mock(metadata="{{ [1] }}"))), bad(INVALID)),
    "with: each field is evaluated with its type": Case(
        stepped(call(mock(value={"a": ["{{ call.input }}"]}))), ok({"a": [5]}), 5
    ),
    "with: a validation failure is caught like any": Case(
        handled(mock(bogus=1), returned("{{ [failure.code, failure.type] }}")), ok([INVALID, "error"])
    ),
    "with: a fault is the call's failure": Case(
        handled(mock(value=UNKNOWN), returned("{{ failure.code }}")), ok(FAULT)
    ),
    "call is not in scope in the step's own fields": Case(stepped(call(mock(), output="{{ call.input }}")), bad(FAULT)),
}


@pytest.mark.parametrize("name", BASICS)
def test_basics(name: str) -> None:
    play(BASICS[name])


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    play(CALLS[name])
