"""Tables of flows and their Results: stacks of middleware, and Finally."""

import pytest

from tests.support.flow_cases import (
    EXHAUSTED,
    FAULT,
    INVALID,
    LATE,
    LOGGED,
    SLOW,
    UNKNOWN,
    Case,
    around,
    bad,
    logging,
    logs,
    noting,
    ok,
    one_step,
    play,
    shaper,
    stack,
    uncaught,
)
from tests.support.flows import (
    FINALLY,
    RETRY,
    TIMEOUT,
    call,
    caught,
    cleanup,
    entry,
    failing,
    mock,
    retry,
    returned,
    subflow,
    timeout,
)

# -- the onion ---------------------------------------------------------------------------------------------------------

ONION = {
    "order: a success": Case(stack(logging("A"), logging("B"), then="{{ vars.log }}"), ok("AeBeBsBaAsAa")),
    "order: a failure": Case(
        stack(logging("A"), logging("B"), target=failing("X"), then="{{ vars.log }}"), ok("AeBeBfBaAfAa")
    ),
    "order: a fault on entry": Case(
        stack(
            logging("A"),
            logging("B", onEntry={"output": UNKNOWN}),
            target={**mock(), "onSuccess": logs("called")},
            then="{{ vars.log }}",
        ),
        ok("AeAfAa"),
    ),
    "order: a fault on success": Case(
        stack(logging("A"), logging("B", onSuccess={"value": UNKNOWN}), then="{{ vars.log }}"), ok("AeBeBaAfAa")
    ),
    "order: a fault in the cleanup": Case(
        stack(logging("A"), entry(FINALLY, onAlways={"with": {"call": failing("C")}}), then="{{ vars.log }}"),
        ok("AeAfAa"),
    ),
    "order: the arms run before the stack, the step's output after it": Case(
        stack(logging("A"), target={**mock(), "onSuccess": logs("arm ")}, then="{{ vars.log }}", **logs(" step")),
        ok("Aearm AsAa step"),
    ),
    "order: a stack of the flow and one of a step": Case(
        around(logging("A"), steps={"s": call(mock(), middleware=[logging("B")]), "done": returned()}), ok("x"), "x"
    ),
    "values: down and up": Case(
        stack(
            shaper(
                {"output": "{{ middleware.input + ['A'] }}"},
                onSuccess={"value": "{{ middleware.result.value + ['a'] }}"},
            ),
            shaper(
                {"output": "{{ middleware.input + ['B'] }}"},
                onSuccess={"value": "{{ middleware.result.value + ['b'] }}"},
            ),
            input="{{ step.input + ['step'] }}",
            output="{{ step.result.value + ['out'] }}",
        ),
        ok(["in", "step", "A", "B", "b", "a", "out"]),
        ["in"],
    ),
    "values: null replaces the value": Case(
        stack(shaper({"output": None}, onSuccess={"value": "{{ [middleware.result.value] }}"})), ok([None]), "in"
    ),
    "values: an entry's input is the same in all phases": Case(
        stack(
            shaper({"output": "in"}),
            shaper(
                {"output": "deeper"},
                onSuccess={"value": "{{ middleware.input }}", "assign": {"log": "{{ middleware.input }}"}},
                onAlways={"assign": {"n": "{{ middleware.input }}"}},
            ),
            then="{{ [step.input, vars.log, vars.n] }}",
        ),
        ok(["in", "in", "in"]),
    ),
    "values: a cleanup sees the value that its entry shaped": Case(
        stack(
            shaper(onSuccess={"value": "shaped"}, onAlways={"assign": {"log": "{{ middleware.result.value }}"}}),
            then="{{ vars.log }}",
        ),
        ok("shaped"),
    ),
    "values: the step's result is the outermost entry's": Case(
        stack(shaper(onSuccess={"value": 1}), shaper(onSuccess={"value": 2}), output="{{ step.result }}"),
        ok({"type": "success", "value": 1}),
    ),
    "failures: each translation chains the one before it": Case(
        uncaught(
            shaper(onFailure={"code": "{{ 'Outer.' + middleware.result.code }}"}),
            shaper(onFailure={"code": "Inner", "message": "in", "details": {"was": "{{ middleware.result.details }}"}}),
            target=failing("X", type="Odd", message="x", details=5, retryable=True),
        ),
        bad(
            "Outer.Inner",
            type="Odd",
            message="in",
            details={"was": 5},
            retryable=True,
            previous=bad(
                "Inner", type="Odd", message="in", retryable=True, previous=bad("X", type="Odd", message="x", details=5)
            ),
        ),
    ),
    "failures: assignments alone leave the failure unchanged": Case(
        uncaught(shaper(onFailure=logs("f")), target=failing("X")), bad("X", previous=None)
    ),
    "failures: retryable alone": Case(
        uncaught(shaper(onFailure={"retryable": False}), target=failing("X", retryable=True)),
        bad("X", retryable=False, previous=bad("X", retryable=True)),
    ),
    "failures: a custom type": Case(
        uncaught(shaper(onFailure={"type": "Mine"}), target=failing("X")),
        {"type": "Mine", "code": "X", "previous": bad("X", previous=None)},
    ),
    "failures: a previous of null cuts the chain": Case(
        uncaught(shaper(onFailure={"code": "Y", "previous": None}), target=failing("X")), bad("Y", previous=None)
    ),
    "failures: a cleanup sees the translation": Case(
        stack(
            shaper(onFailure={"code": "Y"}, onAlways={"assign": {"log": "{{ middleware.result.code }}"}}),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("Y"),
    ),
    "failures: an entry does not handle its own failure": Case(
        uncaught(shaper(onFailure={"code": "Outer"}), shaper({"output": UNKNOWN}, onFailure={"code": "Own"})),
        bad("Outer", previous=bad(FAULT, previous=None)),
    ),
    "failures: a fault in onFailure chains the failure": Case(
        uncaught(shaper(onFailure={"assign": {"log": UNKNOWN}}), target=failing("X")), bad(FAULT, previous=bad("X"))
    ),
    "failures: a fault in onAlways chains the failure": Case(
        uncaught(shaper(onAlways={"assign": {"log": UNKNOWN}}), target=failing("X")), bad(FAULT, previous=bad("X"))
    ),
    "failures: a fault in onAlways after a success chains nothing": Case(
        uncaught(shaper(onAlways={"assign": {"log": UNKNOWN}})), bad(FAULT, previous=None)
    ),
    "failures: a fault in onAlways chains the fault in onSuccess": Case(
        uncaught(shaper(onSuccess={"value": UNKNOWN}, onAlways={"assign": {"log": UNKNOWN}})),
        bad(FAULT, previous=bad(FAULT, previous=None)),
    ),
    "when: false skips arguments that would fault": Case(
        stack(entry(TIMEOUT, onEntry={"when": False, "with": {"duration": UNKNOWN}, "output": "shaped"})),
        ok("shaped"),
        "in",
    ),
    "when: not a boolean": Case(
        uncaught(entry(TIMEOUT, onEntry={"when": "{{ 1 }}", "with": {"duration": "PT5S"}})), bad(FAULT)
    ),
    "when: a gated phase does not evaluate its arguments": Case(
        stack(timeout("PT5S", onSuccess={"when": "{{ false }}", "with": {"x": UNKNOWN}})), ok("in"), "in"
    ),
    "with: an expression": Case(
        uncaught(
            entry(RETRY, onEntry={"with": "{{ {'policies': [{'match': {'codes': ['*']}, 'attempts': 2}]} }}"}),
            target=failing("X"),
        ),
        bad(EXHAUSTED, details={"attempts": 2, "policy": 0}),
    ),
    "with: an expression that is not an object": Case(
        uncaught(entry(TIMEOUT, onEntry={"with": "{{ 'PT5S' }}"})), bad(INVALID)
    ),
    "with: missing": Case(uncaught(entry(TIMEOUT)), bad(INVALID)),
    "flow level: the graph's failure is shaped": Case(
        around(shaper(onFailure={"code": "Y"}), steps={"r": {"action": "Raise", "result": {"code": "X"}}}),
        bad("Y", previous=bad("X")),
    ),
    "flow level: onSuccess does not see a handled failure": Case(
        around(
            shaper(onSuccess={"value": "{{ failure == null }}"}),
            steps={"s": call(failing("X"), catch=[caught("done")]), "done": returned()},
        ),
        ok(True),
    ),
    "flow level: onFailure sees the failure that leaves the graph": Case(
        around(
            shaper(onFailure={"message": "{{ failure.code }}"}), steps={"s": call(failing("X")), "done": returned()}
        ),
        bad("X", message="X"),
    ),
    "flow level: invalid arguments do not enter the stack": Case(
        around(shaper(onFailure={"code": "Seen"}), steps={"r": returned()}),
        bad(INVALID, previous=None),
        arguments={"bogus": 1},
    ),
}


# -- Finally -----------------------------------------------------------------------------------------------------------


FINALLYS = {
    "a success passes unchanged": Case(stack(cleanup(mock(value="other")), target=mock(value=1)), ok(1)),
    "a failure passes unchanged": Case(
        uncaught(cleanup(mock(value="other")), target=failing("X")), bad("X", previous=None)
    ),
    "a failing cleanup replaces a success": Case(uncaught(cleanup(failing("C"))), bad("C", previous=None)),
    "a failing cleanup chains the failure": Case(
        uncaught(cleanup(failing("C")), target=failing("X")), bad("C", previous=bad("X", previous=None))
    ),
    "a cleanup that times out chains the failure": Case(
        uncaught(cleanup(SLOW, middleware=[timeout("PT5S")]), target=failing("X")),
        {**LATE, "previous": bad("X", previous=None)},
    ),
    "an exhausted cleanup chains its own failure, then the displaced one": Case(
        uncaught(cleanup(failing("C"), middleware=[retry(2)]), target=failing("X")),
        bad(EXHAUSTED, previous=bad("C", previous=bad("X", previous=None))),
    ),
    "the cleanup's stack translates its failure": Case(
        uncaught(cleanup(failing("C"), middleware=[shaper(onFailure={"code": "T"})])),
        bad("T", previous=bad("C", previous=None)),
    ),
    "the bindings of the call": Case(
        stack(
            cleanup(
                {
                    **mock(),
                    "input": "{{ [call.input, middleware.input, middleware.result.value, step.name, failure] }}",
                    "onSuccess": {"assign": {"log": "{{ call.result.value }}"}},
                }
            ),
            target=mock(value=1),
            input="shaped",
            then="{{ vars.log }}",
        ),
        ok(["shaped", "shaped", 1, "s", None]),
        "in",
    ),
    "onAlways reads the assignments of the call's arm": Case(
        stack(
            entry(
                FINALLY,
                onAlways={
                    "with": {
                        "call": {**mock(value="noted"), "onSuccess": {"assign": {"log": "{{ call.result.value }}"}}}
                    },
                    "assign": {"n": "{{ vars.log }}"},
                },
            ),
            then="{{ vars.n }}",
        ),
        ok("noted"),
    ),
    "the failure arm of the call runs": Case(
        stack(
            cleanup({**failing("C"), "onFailure": {"assign": {"log": "{{ call.result.code }}"}}}),
            then="{{ [failure.code, vars.log] }}",
        ),
        ok(["C", "C"]),
    ),
    "when: can read the result": Case(
        stack(
            entry(
                FINALLY,
                onAlways={
                    "when": "{{ middleware.result.type != 'success' }}",
                    "with": {"call": {**mock(), "onSuccess": logs("ran")}},
                },
            ),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("ran"),
    ),
    "when: a gated cleanup still assigns": Case(
        stack(
            entry(FINALLY, onAlways={"when": False, "with": {"call": failing("C")}, **logs("kept")}),
            then="{{ vars.log }}",
        ),
        ok("kept"),
    ),
    "when: a fault chains the failure": Case(
        uncaught(entry(FINALLY, onAlways={"when": UNKNOWN, "with": {"call": mock()}}), target=failing("X")),
        bad(FAULT, previous=bad("X")),
    ),
    "with: a fault in the call chains the failure": Case(
        uncaught(cleanup(mock(value=UNKNOWN)), target=failing("X")), bad(FAULT, previous=bad("X"))
    ),
    "the call runs a flow": Case(
        stack(
            cleanup(
                {
                    "flow": subflow({"r": returned("{{ frame.input }}")}),
                    "input": "{{ middleware.result.code }}",
                    "onSuccess": {"assign": {"log": "{{ flow.result.value }}"}},
                }
            ),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("X"),
    ),
    "inner cleanups run first": Case(stack(noting("A"), noting("B"), then="{{ vars.log }}"), ok("BA")),
    "the step's cleanup runs before the flow's": Case(
        one_step(
            call(
                {
                    "flow": subflow(
                        {"s": call(mock(), middleware=[noting("step ")]), "done": returned()},
                        middleware=[noting("flow")],
                        **LOGGED,
                    ),
                    "onSuccess": {"value": "{{ flow.vars.log }}"},
                }
            )
        ),
        ok("step flow"),
    ),
    "inside a retry: runs after each attempt": Case(
        stack(
            retry(3, onFailure={"assign": {"log": "{{ vars.log }}"}}),
            noting("x"),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("xxx"),
    ),
    "outside a retry: runs once": Case(
        stack(noting("x"), retry(3), target=failing("X"), then="{{ vars.log }}"), ok("x")
    ),
    "an outer retry repeats a failing cleanup": Case(
        uncaught(retry(2, "C"), cleanup(failing("C"))), bad(EXHAUSTED, previous=bad("C", previous=None))
    ),
    "an entry that fails on entry does not clean up": Case(
        stack(
            entry(
                FINALLY, onEntry={"output": UNKNOWN}, onAlways={"with": {"call": {**mock(), "onSuccess": logs("ran")}}}
            ),
            then="{{ vars.log }}",
        ),
        ok(""),
    ),
    "around a flow that raises": Case(
        around(cleanup(failing("C")), steps={"r": {"action": "Raise", "result": {"code": "X"}}}),
        bad("C", previous=bad("X", previous=None)),
    ),
    "around a flow: a catch inside does not see its failure": Case(
        around(cleanup(failing("C")), steps={"s": call(mock(), catch=[caught("done")]), "done": returned()}),
        bad("C", previous=None),
    ),
}


@pytest.mark.parametrize("name", ONION)
def test_stacks(name: str) -> None:
    play(ONION[name])


@pytest.mark.parametrize("name", FINALLYS)
def test_finallys(name: str) -> None:
    play(FINALLYS[name])
