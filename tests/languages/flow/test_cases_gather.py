"""Cases in the manner of a conformance corpus: fan-outs and subflows."""

from typing import Any

import pytest

from tests.support.flow_cases import (
    FAULT,
    INVALID,
    UNKNOWN,
    UNMET,
    Case,
    bad,
    handled,
    ok,
    parameters,
    passed,
    play,
    raising,
    shown,
    stepped,
)
from tests.support.flows import (
    call,
    caught,
    cleanup,
    failing,
    flow,
    mock,
    returned,
    subflow,
    timeout,
)

# -- Gather ------------------------------------------------------------------------------------------------------------


def fan(over: Any, target: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "Gather", "over": over, "call": target, "next": "done", **fields}


def scatter(*calls: Any, **fields: Any) -> dict[str, Any]:
    return {"action": "Gather", "calls": list(calls), "next": "done", **fields}


ODD_FAILS = mock(failure="{{ int(call.index) % 2 == 1 ? {'code': 'Odd', 'details': call.index} : null }}")
TYPES = "{{ step.results.map(r, r.type) }}"
CODES = "{{ step.results.map(r, r.type == 'success' ? 'ok' : r.code) }}"
DISPATCHED = "System.GatherDispatchCancelled"
SKIPPED = "System.GatherDispatchSkipped"


def odd(index: int) -> dict[str, Any]:
    return {"index": index, "result": {"type": "error", "code": "Odd", "details": index, "previous": None}}


SLOW_LATER = mock(delay="{{ call.index == 0.0 ? 'PT1S' : 'PT1H' }}")
NAPPING = {"flow": subflow({"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()})}

GATHERS = {
    "over: a literal with expressions": Case(stepped(fan([1, "{{ step.input }}"], mock())), ok([1, "in"]), "in"),
    "over: null": Case(stepped(fan("{{ null }}", mock())), bad(INVALID)),
    "over: an object": Case(stepped(fan("{{ {'a': 1} }}", mock())), bad(INVALID)),
    "over: nothing, by default": Case(stepped(fan([], mock())), ok([])),
    "over: nothing, and one must succeed": Case(
        stepped(fan([], mock(), completion={"successes": 1})), bad(UNMET, details={"failures": [], "failureCount": 0})
    ),
    "over: nothing, and nothing must": Case(stepped(fan([], mock(), completion={"successes": 0})), ok([])),
    "default: one failure is too many": Case(
        stepped(fan([1, 2, 3, 4], ODD_FAILS)),
        bad(UNMET, details={"failures": [odd(1), odd(3)], "failureCount": 2}, previous=None),
    ),
    "default: its restatement": Case(
        stepped(fan([1, 2], ODD_FAILS, completion={"successes": "{{ step.metadata.dispatchCount }}"})), bad(UNMET)
    ),
    "successes: as many as there are": Case(
        stepped(fan([1, 2, 3], ODD_FAILS, completion={"successes": 2}, output=TYPES)),
        ok(["success", "error", "success"]),
    ),
    "successes: the projection leaves failures out": Case(
        stepped(fan([1, 2, 3], ODD_FAILS, completion={"successes": 2})), ok([1, 3])
    ),
    "successes: none is needed": Case(stepped(fan([1], failing("X"), completion={"successes": 0})), ok([])),
    "successes: fewer than none": Case(stepped(fan([1], failing("X"), completion={"successes": "{{ -1 }}"})), ok([])),
    "successes: half, computed": Case(
        stepped(fan([1, 2, 3, 4], ODD_FAILS, completion={"successes": "{{ step.metadata.dispatchCount / 2.0 }}"})),
        ok([1, 3]),
    ),
    "successes: more than there are, awaited": Case(
        stepped(fan([1], mock(), completion={"successes": 2}, catch=[caught("done", output=CODES)])), ok(["ok"])
    ),
    "successes: more than there are, not awaited": Case(
        stepped(fan([1], mock(), completion={"successes": 2, "wait": False}, catch=[caught("done", output=CODES)])),
        ok([SKIPPED]),
    ),
    "successes: a text": Case(stepped(fan([1], mock(), completion={"successes": "{{ '1' }}"})), bad(INVALID)),
    "successes: a fraction": Case(stepped(fan([1], mock(), completion={"successes": "{{ 0.5 }}"})), bad(INVALID)),
    "successes: null": Case(stepped(fan([1], mock(), completion={"successes": "{{ null }}"})), bad(INVALID)),
    "successes: a fault": Case(stepped(fan([1], mock(), completion={"successes": UNKNOWN})), bad(FAULT)),
    "no wait: the first is enough": Case(
        stepped(fan([1, 2, 3], SLOW_LATER, completion={"successes": 1, "wait": False}, output=CODES)),
        ok(["ok", DISPATCHED, DISPATCHED]),
    ),
    "no wait: a cap leaves the rest unstarted": Case(
        stepped(fan([1, 2, 3], SLOW_LATER, completion={"successes": 1, "wait": False}, concurrency=1, output=CODES)),
        ok(["ok", SKIPPED, SKIPPED]),
    ),
    "no wait: cancelled and skipped": Case(
        stepped(fan([1, 2, 3], SLOW_LATER, completion={"successes": 1, "wait": False}, concurrency=2, output=TYPES)),
        ok(["success", "cancellation", "skipped"]),
    ),
    "no wait: out of reach": Case(
        stepped(
            fan(
                [1, 2],
                mock(delay="{{ call.index == 0.0 ? 'PT1S' : 'PT1H' }}", failure={"code": "X"}),
                completion={"successes": 2, "wait": False},
            )
        ),
        bad(
            UNMET,
            details={
                "failures": [
                    {"index": 0, "result": {"type": "error", "code": "X"}},
                    {"index": 1, "result": {"type": "cancellation", "code": DISPATCHED, "previous": None}},
                ],
                "failureCount": 2,
            },
        ),
    ),
    "wait: everything runs though the outcome is clear": Case(
        stepped(
            fan(
                [1, 2, 3],
                mock(delay="{{ 'PT' + string(call.input) + 'S' }}"),
                completion={"successes": 1},
                output=TYPES,
            )
        ),
        ok(["success"] * 3),
    ),
    "arms: in order, each sees what those before it left": Case(
        flow(
            {
                "s": fan(
                    ["a", "b", "c"],
                    {
                        **mock(delay="{{ 'PT' + string(9.0 - call.index) + 'S' }}"),
                        "onSuccess": {"value": "{{ vars.n }}", "assign": {"n": "{{ vars.n + call.input }}"}},
                    },
                ),
                "done": returned("{{ [step.input, vars.n] }}"),
            },
            **parameters(n=""),
        ),
        ok([["", "a", "ab"], "abc"]),
    ),
    "arms: of failures and successes alike": Case(
        flow(
            {
                "s": fan(
                    [0, 1, 2],
                    {
                        **ODD_FAILS,
                        "onSuccess": {"assign": {"n": "{{ vars.n + 's' }}"}},
                        "onFailure": {"assign": {"n": "{{ vars.n + call.result.code }}"}},
                    },
                    completion={"successes": 0},
                ),
                "done": returned("{{ vars.n }}"),
            },
            **parameters(n=""),
        ),
        ok("sOdds"),
    ),
    "arms: a fault in the failure arm has the failure behind it": Case(
        stepped(fan([0], {**failing("X"), "onFailure": {"assign": {"a": UNKNOWN}}})),
        bad(
            UNMET,
            details={
                "failures": [{"index": 0, "result": bad(FAULT, previous={"type": "error", "code": "X"})}],
                "failureCount": 1,
            },
        ),
    ),
    "arms: not of a dispatch that is cancelled": Case(
        flow(
            {
                "s": fan(
                    [0, 1],
                    {
                        **SLOW_LATER,
                        "onSuccess": {"assign": {"n": "{{ vars.n + 's' }}"}},
                        "onFailure": {"assign": {"n": "{{ vars.n + 'f' }}"}},
                    },
                    completion={"successes": 1, "wait": False},
                ),
                "done": returned("{{ vars.n }}"),
            },
            **parameters(n=""),
        ),
        ok("s"),
    ),
    "arms: not the results, which are not final": Case(
        stepped(
            fan(
                [1], {**mock(), "onSuccess": {"value": "{{ step.results }}"}}, output=CODES, completion={"successes": 0}
            )
        ),
        ok([FAULT]),
    ),
    "fields: not the results either": Case(
        stepped(fan([1], mock(value="{{ step.results }}"), output=CODES, completion={"successes": 0})), ok([FAULT])
    ),
    "fields: the count of the dispatches is known": Case(
        stepped(fan([1, 2], mock(value="{{ step.metadata.dispatchCount }}"))), ok([2, 2])
    ),
    "fields: a fault is that dispatch's own": Case(
        stepped(fan([1, 0], mock(value="{{ 1 / int(call.input) }}"), completion={"successes": 1}, output=CODES)),
        ok(["ok", FAULT]),
    ),
    "fields: validation is that dispatch's own": Case(
        stepped(fan([1], mock(bogus=1), completion={"successes": 0}, output=CODES)), ok([INVALID])
    ),
    "scatter: each with what the step received": Case(
        stepped(
            scatter(
                mock(value="{{ [call.input, call.index] }}"),
                {**mock(), "input": "own"},
                {"flow": subflow({"r": returned("{{ frame.input }}")})},
            )
        ),
        ok([["in", 0], "own", "in"]),
        "in",
    ),
    "scatter: one fails": Case(
        stepped(scatter(mock(), failing("X"), output=CODES, completion={"successes": 1})), ok(["ok", "X"])
    ),
    "catch: never a dispatch's failure": Case(stepped(fan([1], failing("X"), catch=[caught("done", "X")])), bad(UNMET)),
    "catch: what the step received passes": Case(
        stepped(fan([1], failing("X"), catch=[caught("done")])), ok("in"), "in"
    ),
    "catch: every result is read, the arms have run": Case(
        flow(
            {
                "s": fan(
                    [1, 2],
                    {
                        **ODD_FAILS,
                        "onSuccess": {"value": "{{ call.input + 1.0 }}"},
                        "onFailure": {"assign": {"n": "{{ call.index }}"}},
                    },
                    catch=[caught("done", output="{{ [step.results[0].value, step.results[1].code, vars.n] }}")],
                ),
                "done": returned(),
            }
        ),
        ok([2, "Odd", 1]),
    ),
    "chain: a Gather that fails in a handler": Case(
        handled(failing("A"), {**fan([1], failing("X"))}),
        bad(UNMET, previous={"type": "error", "code": "A", "previous": None}),
    ),
    "output: faults and is caught": Case(
        stepped(fan([1], mock(), output=UNKNOWN, catch=[caught("done", FAULT, output=CODES)])), ok(["ok"])
    ),
    "nested: one fan-out in another": Case(
        stepped(fan([[1, 2], [], [3]], {"flow": subflow({"g": fan("{{ step.input }}", mock()), "done": returned()})})),
        ok([[1, 2], [], [3]]),
    ),
    "wrapped: a bound on each dispatch": Case(
        stepped(
            fan(
                ["PT1S", "PT1H"],
                {
                    "flow": subflow(
                        {"w": call(mock(delay="{{ call.input }}"), middleware=[timeout("PT5S")]), "done": returned()}
                    )
                },
                completion={"successes": 1},
                output=TYPES,
            )
        ),
        ok(["success", "timeout"]),
    ),
    "wrapped: a clean-up that fails in a cancelled dispatch": Case(
        stepped(
            scatter(
                mock(delay="PT1S"),
                {"flow": {**NAPPING["flow"], "middleware": [cleanup(failing("Cleanup"))]}},
                completion={"successes": 1, "wait": False},
                output="{{ [step.results[1].code, step.results[1].previous.code, step.results[1].previous.type] }}",
            )
        ),
        ok(["Cleanup", DISPATCHED, "cancellation"]),
    ),
    "concurrency: null is no cap": Case(stepped(fan([1, 2], mock(), concurrency=None)), ok([1, 2])),
    "step has results and no result": Case(
        stepped(fan([1], mock(), output="{{ [has(step.results), has(step.result)] }}")), ok([True, False])
    ),
}


# -- subflows ----------------------------------------------------------------------------------------------------------

GREETING = subflow(
    {"p": passed("r", assign={"local": "{{ vars.name + '!' }}"}), "r": returned("{{ 'hello ' + vars.local }}")},
    **parameters(name="you"),
)
BREAKING = subflow({"p": passed("r", assign={"local": 1}), "r": raising(code="Broke", details="{{ vars.local }}")})


def strict(schema: Any) -> dict[str, Any]:
    return subflow({"r": returned("{{ vars.a }}")}, parameters={"type": "object", "properties": {"a": schema}})


SUBFLOWS: dict[str, Case] = {
    "named, with a default": Case(stepped(call({"flow": "Greet"}), flows={"Greet": GREETING}), ok("hello you!")),
    "named, with an argument": Case(
        stepped(call({"flow": "Greet", "with": {"name": "{{ call.input }}"}}), flows={"Greet": GREETING}),
        ok("hello me!"),
        "me",
    ),
    "with as one expression": Case(
        stepped(call({"flow": GREETING, "with": "{{ {'name': call.input} }}"})), ok("hello me!"), "me"
    ),
    "with as one expression that is no object": Case(
        stepped(call({"flow": GREETING, "with": "{{ 5 }}"})), bad(INVALID)
    ),
    "the window shows the frame": Case(
        stepped(
            call(
                {
                    "flow": GREETING,
                    "onSuccess": {"value": "{{ [flow.input, flow.vars, flow.result, has(flow.metadata.exitedAt)] }}"},
                }
            )
        ),
        ok(["in", {"name": "you", "local": "you!"}, {"type": "success", "value": "hello you!"}, True]),
        "in",
    ),
    "the window of a failed frame": Case(
        handled(
            {"flow": BREAKING, "onFailure": {"assign": {"seen": "{{ [flow.vars.local, flow.result.code] }}"}}},
            returned("{{ vars.seen }}"),
        ),
        ok([1, "Broke"]),
    ),
    "the window of a frame that refused its arguments": Case(
        handled(
            {
                "flow": GREETING,
                "with": {"bogus": 1},
                "onFailure": {"assign": {"seen": "{{ [flow.result.code, flow.vars] }}"}},
            },
            returned("{{ vars.seen }}"),
        ),
        ok([INVALID, {}]),
    ),
    "a flow's target has no provider": Case(
        stepped(call({"flow": GREETING, "onSuccess": {"value": "{{ provider }}"}})), bad(FAULT)
    ),
    "variables do not come back": Case(
        flow({"s": call({"flow": GREETING}), "done": returned("{{ has(vars.local) }}")}), ok(False)
    ),
    "variables do not go in": Case(
        flow({"p": passed("s", assign={"name": "x"}), "s": call({"flow": GREETING}), "done": returned()}),
        ok("hello you!"),
    ),
    "the frame's input is the call's": Case(
        stepped(
            call(
                {
                    "flow": subflow({"p": passed("r", output=0), "r": returned("{{ [frame.input, step.input] }}")}),
                    "input": "x",
                }
            )
        ),
        ok(["x", 0]),
    ),
    "a stack reshapes what the graph receives, not the frame's input": Case(
        stepped(
            call(
                {
                    "flow": subflow(
                        {"r": returned("{{ [frame.input, step.input] }}")}, middleware=[shown({"output": "shaped"})]
                    )
                }
            ),
        ),
        ok(["in", "shaped"]),
        "in",
    ),
    "the step of the caller is out of sight": Case(
        stepped(call({"flow": subflow({"r": returned("{{ step.name }}")})})), ok("r")
    ),
    "the call of the caller is out of sight": Case(
        stepped(call({"flow": subflow({"r": returned("{{ call.input }}")})})), bad(FAULT)
    ),
    "a format is asserted: duration": Case(
        stepped(call({"flow": strict({"type": "string", "format": "duration"}), "with": {"a": "1 hour"}})), bad(INVALID)
    ),
    "a format is asserted: date-time": Case(
        stepped(call({"flow": strict({"format": "date-time"}), "with": {"a": "2026-02-30T00:00:00Z"}})), bad(INVALID)
    ),
    "a format is asserted: a negative duration is one": Case(
        stepped(call({"flow": strict({"format": "duration"}), "with": {"a": "-PT5S"}})), ok("-PT5S")
    ),
    "a format is asserted of strings only": Case(
        stepped(call({"flow": strict({"format": "date"}), "with": {"a": 5}})), ok(5)
    ),
    "a format is asserted in the depth": Case(
        stepped(
            call({"flow": strict({"type": "array", "items": {"format": "email"}}), "with": {"a": ["a@b.c", "nobody"]}})
        ),
        bad(INVALID),
    ),
    "a failure passes through a frame unchanged": Case(
        stepped(call({"flow": subflow({"s": call(failing("X", message="m")), "done": returned()})})),
        bad("X", message="m", previous=None),
    ),
    "a timeout around a subflow's graph is caught outside": Case(
        handled(
            {"flow": {**NAPPING["flow"], "middleware": [timeout("PT5S")]}},
            returned("{{ [failure.type, failure.code] }}"),
        ),
        ok(["timeout", "Provider.Middleware.Timeout.Exceeded"]),
    ),
    "a catch inside does not see its own frame's timeout": Case(
        handled(
            {
                "flow": subflow(
                    {"s": call(mock(delay="PT1H"), catch=[caught("done")]), "done": returned("inside")},
                    middleware=[timeout("PT5S")],
                )
            },
            returned("outside"),
        ),
        ok("outside"),
    ),
    "a name is found outward from its declaration": Case(
        flow(
            {"s": call({"flow": "Outer"}), "done": returned()},
            flows={
                "Inner": subflow({"r": returned("the root's")}),
                "Outer": subflow(
                    {"s": call({"flow": "Inner"}), "done": returned()},
                    flows={"Inner": subflow({"r": returned("its own")})},
                ),
            },
        ),
        ok("its own"),
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name: str) -> None:
    play(GATHERS[name])


@pytest.mark.parametrize("name", SUBFLOWS)
def test_subflows(name: str) -> None:
    play(SUBFLOWS[name])
