"""Tables of flows and their Results: fan-outs and subflows."""

from typing import Any

import pytest

from tests.support.flow_cases import (
    FAULT,
    INVALID,
    UNKNOWN,
    UNMET,
    Case,
    bad,
    handling,
    ok,
    one_step,
    parameters,
    passed,
    play,
    raising,
    shaper,
)
from tests.support.flows import call, caught, cleanup, failing, flow, mock, returned, subflow, timeout

# -- Gather ------------------------------------------------------------------------------------------------------------


def gather(successes: Any = None, wait: bool = True, **fields: Any) -> dict[str, Any]:
    """A Gather step; it has a completion policy if ``successes`` is given."""
    policy = {} if successes is None else {"completion": {"successes": successes, "wait": wait}}
    return {"action": "Gather", "next": "done", **policy, **fields}


def fan(over: Any, target: Any, **fields: Any) -> dict[str, Any]:
    return gather(over=over, call=target, **fields)


def fanned(over: Any, target: Any, **fields: Any) -> dict[str, Any]:
    """A flow of one fan-out."""
    return one_step(fan(over, target, **fields))


def scatter(*calls: Any, **fields: Any) -> dict[str, Any]:
    """A flow of one Gather over several calls."""
    return one_step(gather(calls=list(calls), **fields))


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
    "over: a literal with expressions": Case(fanned([1, "{{ step.input }}"], mock()), ok([1, "in"]), "in"),
    "over: null": Case(fanned("{{ null }}", mock()), bad(INVALID)),
    "over: an object": Case(fanned("{{ {'a': 1} }}", mock()), bad(INVALID)),
    "over: an empty list succeeds by default": Case(fanned([], mock()), ok([])),
    "over: an empty list, one success required": Case(
        fanned([], mock(), successes=1), bad(UNMET, details={"failures": [], "failureCount": 0})
    ),
    "over: an empty list, no success required": Case(fanned([], mock(), successes=0), ok([])),
    "default: one failure is too many": Case(
        fanned([1, 2, 3, 4], ODD_FAILS),
        bad(UNMET, details={"failures": [odd(1), odd(3)], "failureCount": 2}, previous=None),
    ),
    "default: spelled out as dispatchCount": Case(
        fanned([1, 2], ODD_FAILS, successes="{{ step.metadata.dispatchCount }}"), bad(UNMET)
    ),
    "successes: just enough": Case(
        fanned([1, 2, 3], ODD_FAILS, successes=2, output=TYPES), ok(["success", "error", "success"])
    ),
    "successes: the value leaves failures out": Case(fanned([1, 2, 3], ODD_FAILS, successes=2), ok([1, 3])),
    "successes: zero": Case(fanned([1], failing("X"), successes=0), ok([])),
    "successes: negative": Case(fanned([1], failing("X"), successes="{{ -1 }}"), ok([])),
    "successes: computed": Case(
        fanned([1, 2, 3, 4], ODD_FAILS, successes="{{ step.metadata.dispatchCount / 2.0 }}"), ok([1, 3])
    ),
    "successes: more than dispatches, with wait": Case(
        fanned([1], mock(), successes=2, catch=[caught("done", output=CODES)]), ok(["ok"])
    ),
    "successes: more than dispatches, without wait": Case(
        fanned([1], mock(), successes=2, wait=False, catch=[caught("done", output=CODES)]), ok([SKIPPED])
    ),
    "successes: a string": Case(fanned([1], mock(), successes="{{ '1' }}"), bad(INVALID)),
    "successes: null": Case(fanned([1], mock(), successes="{{ null }}"), bad(INVALID)),
    "no wait: the first is enough": Case(
        fanned([1, 2, 3], SLOW_LATER, successes=1, wait=False, output=CODES), ok(["ok", DISPATCHED, DISPATCHED])
    ),
    "no wait: dispatches beyond the cap are skipped": Case(
        fanned([1, 2, 3], SLOW_LATER, successes=1, wait=False, concurrency=1, output=CODES),
        ok(["ok", SKIPPED, SKIPPED]),
    ),
    "no wait: cancelled and skipped": Case(
        fanned([1, 2, 3], SLOW_LATER, successes=1, wait=False, concurrency=2, output=TYPES),
        ok(["success", "cancellation", "skipped"]),
    ),
    "wait: all dispatches run though the outcome is certain": Case(
        fanned([1, 2, 3], mock(delay="{{ 'PT' + string(call.input) + 'S' }}"), successes=1, output=TYPES),
        ok(["success"] * 3),
    ),
    "arms: run for failures and successes": Case(
        one_step(
            fan(
                [0, 1, 2],
                {
                    **ODD_FAILS,
                    "onSuccess": {"assign": {"n": "{{ vars.n + 's' }}"}},
                    "onFailure": {"assign": {"n": "{{ vars.n + call.result.code }}"}},
                },
                successes=0,
            ),
            then="{{ vars.n }}",
            **parameters(n=""),
        ),
        ok("sOdds"),
    ),
    "arms: a fault in the failure arm chains the failure": Case(
        fanned([0], {**failing("X"), "onFailure": {"assign": {"a": UNKNOWN}}}),
        bad(
            UNMET,
            details={
                "failures": [{"index": 0, "result": bad(FAULT, previous={"type": "error", "code": "X"})}],
                "failureCount": 1,
            },
        ),
    ),
    "arms: cannot read the results": Case(
        fanned([1], {**mock(), "onSuccess": {"value": "{{ step.results }}"}}, output=CODES, successes=0), ok([FAULT])
    ),
    "fields: cannot read the results": Case(
        fanned([1], mock(value="{{ step.results }}"), output=CODES, successes=0), ok([FAULT])
    ),
    "fields: can read the count of dispatches": Case(
        fanned([1, 2], mock(value="{{ step.metadata.dispatchCount }}")), ok([2, 2])
    ),
    "fields: a fault fails its dispatch only": Case(
        fanned([1, 0], mock(value="{{ 1 / int(call.input) }}"), successes=1, output=CODES), ok(["ok", FAULT])
    ),
    "fields: a validation failure fails its dispatch only": Case(
        fanned([1], mock(bogus=1), successes=0, output=CODES), ok([INVALID])
    ),
    "scatter: each call receives the step's input": Case(
        scatter(
            mock(value="{{ [call.input, call.index] }}"),
            {**mock(), "input": "own"},
            {"flow": subflow({"r": returned("{{ frame.input }}")})},
        ),
        ok([["in", 0], "own", "in"]),
        "in",
    ),
    "scatter: one fails": Case(scatter(mock(), failing("X"), output=CODES, successes=1), ok(["ok", "X"])),
    "catch: does not match the failure of a dispatch": Case(
        fanned([1], failing("X"), catch=[caught("done", "X")]), bad(UNMET)
    ),
    "catch: passes on the step's input": Case(fanned([1], failing("X"), catch=[caught("done")]), ok("in"), "in"),
    "catch: reads all results and the assignments of arms": Case(
        fanned(
            [1, 2],
            {
                **ODD_FAILS,
                "onSuccess": {"value": "{{ call.input + 1.0 }}"},
                "onFailure": {"assign": {"n": "{{ call.index }}"}},
            },
            catch=[caught("done", output="{{ [step.results[0].value, step.results[1].code, vars.n] }}")],
        ),
        ok([2, "Odd", 1]),
    ),
    "chain: a Gather that fails in a handler": Case(
        handling(failing("A"), {**fan([1], failing("X"))}),
        bad(UNMET, previous={"type": "error", "code": "A", "previous": None}),
    ),
    "output: faults and is caught": Case(
        fanned([1], mock(), output=UNKNOWN, catch=[caught("done", FAULT, output=CODES)]), ok(["ok"])
    ),
    "nested fan-outs": Case(
        fanned([[1, 2], [], [3]], {"flow": subflow({"g": fan("{{ step.input }}", mock()), "done": returned()})}),
        ok([[1, 2], [], [3]]),
    ),
    "wrapped: a timeout for each dispatch": Case(
        fanned(
            ["PT1S", "PT1H"],
            {
                "flow": subflow(
                    {"w": call(mock(delay="{{ call.input }}"), middleware=[timeout("PT5S")]), "done": returned()}
                )
            },
            successes=1,
            output=TYPES,
        ),
        ok(["success", "timeout"]),
    ),
    "wrapped: a clean-up that fails in a cancelled dispatch": Case(
        scatter(
            mock(delay="PT1S"),
            {"flow": {**NAPPING["flow"], "middleware": [cleanup(failing("Cleanup"))]}},
            successes=1,
            wait=False,
            output="{{ [step.results[1].code, step.results[1].previous.code, step.results[1].previous.type] }}",
        ),
        ok(["Cleanup", DISPATCHED, "cancellation"]),
    ),
    "concurrency: null is no cap": Case(fanned([1, 2], mock(), concurrency=None), ok([1, 2])),
    "step has results but not result": Case(
        fanned([1], mock(), output="{{ [has(step.results), has(step.result)] }}"), ok([True, False])
    ),
}


# -- subflows ----------------------------------------------------------------------------------------------------------

GREETING = subflow(
    {"p": passed("r", assign={"local": "{{ vars.name + '!' }}"}), "r": returned("{{ 'hello ' + vars.local }}")},
    **parameters(name="you"),
)
BREAKING = subflow({"p": passed("r", assign={"local": 1}), "r": raising(code="Broke", details="{{ vars.local }}")})


SUBFLOWS: dict[str, Case] = {
    "named, with a default": Case(one_step(call({"flow": "Greet"}), flows={"Greet": GREETING}), ok("hello you!")),
    "named, with an argument": Case(
        one_step(call({"flow": "Greet", "with": {"name": "{{ call.input }}"}}), flows={"Greet": GREETING}),
        ok("hello me!"),
        "me",
    ),
    "with as an expression": Case(
        one_step(call({"flow": GREETING, "with": "{{ {'name': call.input} }}"})), ok("hello me!"), "me"
    ),
    "with as an expression that is not an object": Case(
        one_step(call({"flow": GREETING, "with": "{{ 5 }}"})), bad(INVALID)
    ),
    "the window of a failed frame": Case(
        handling(
            {"flow": BREAKING, "onFailure": {"assign": {"seen": "{{ [flow.vars.local, flow.result.code] }}"}}},
            returned("{{ vars.seen }}"),
        ),
        ok([1, "Broke"]),
    ),
    "the window of a frame that refused its arguments": Case(
        handling(
            {
                "flow": GREETING,
                "with": {"bogus": 1},
                "onFailure": {"assign": {"seen": "{{ [flow.result.code, flow.vars] }}"}},
            },
            returned("{{ vars.seen }}"),
        ),
        ok([INVALID, {}]),
    ),
    "a flow call cannot read provider": Case(
        one_step(call({"flow": GREETING, "onSuccess": {"value": "{{ provider }}"}})), bad(FAULT)
    ),
    "variables of a subflow do not reach its caller": Case(
        one_step(call({"flow": GREETING}), then="{{ has(vars.local) }}"), ok(False)
    ),
    "variables of the caller do not reach a subflow": Case(
        flow({"p": passed("s", assign={"name": "x"}), "s": call({"flow": GREETING}), "done": returned()}),
        ok("hello you!"),
    ),
    "the frame's input is the call's input": Case(
        one_step(
            call(
                {
                    "flow": subflow({"p": passed("r", output=0), "r": returned("{{ [frame.input, step.input] }}")}),
                    "input": "x",
                }
            )
        ),
        ok(["x", 0]),
    ),
    "middleware reshapes the graph's input, not the frame's": Case(
        one_step(
            call(
                {
                    "flow": subflow(
                        {"r": returned("{{ [frame.input, step.input] }}")}, middleware=[shaper({"output": "shaped"})]
                    )
                }
            )
        ),
        ok(["in", "shaped"]),
        "in",
    ),
    "a subflow reads its own step": Case(
        one_step(call({"flow": subflow({"r": returned("{{ step.name }}")})})), ok("r")
    ),
    "a subflow cannot read the caller's call": Case(
        one_step(call({"flow": subflow({"r": returned("{{ call.input }}")})})), bad(FAULT)
    ),
    "a failure passes through a frame unchanged": Case(
        one_step(call({"flow": subflow({"s": call(failing("X", message="m")), "done": returned()})})),
        bad("X", message="m", previous=None),
    ),
    "a timeout around a subflow's graph is caught outside": Case(
        handling(
            {"flow": {**NAPPING["flow"], "middleware": [timeout("PT5S")]}},
            returned("{{ [failure.type, failure.code] }}"),
        ),
        ok(["timeout", "Provider.Middleware.Timeout.Exceeded"]),
    ),
    "a catch inside does not see its own frame's timeout": Case(
        handling(
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
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name: str) -> None:
    play(GATHERS[name])


@pytest.mark.parametrize("name", SUBFLOWS)
def test_subflows(name: str) -> None:
    play(SUBFLOWS[name])
