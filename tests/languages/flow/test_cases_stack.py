"""Cases in the manner of a conformance corpus: stacks of middleware, and Finally."""

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
    play,
    shown,
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
    flow,
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
        stack(logging("A"), logging("B", onEntry={"output": UNKNOWN}), then="{{ vars.log }}"), ok("AeAfAa")
    ),
    "order: a fault on success": Case(
        stack(logging("A"), logging("B", onSuccess={"value": UNKNOWN}), then="{{ vars.log }}"), ok("AeBeBaAfAa")
    ),
    "order: a fault in the cleanup": Case(
        stack(logging("A"), entry(FINALLY, onAlways={"with": {"call": failing("C")}}), then="{{ vars.log }}"),
        ok("AeAfAa"),
    ),
    "order: the arms before the stack, the step's tail after it": Case(
        stack(
            logging("A"),
            target={**mock(), "onSuccess": logs("arm ")},
            then="{{ vars.log }}",
            **logs(" step"),
        ),
        ok("Aearm AsAa step"),
    ),
    "order: both levels": Case(
        around(
            logging("A"),
            steps={"s": call(mock(), middleware=[logging("B")]), "done": returned()},
        ),
        ok("x"),
        "x",
    ),
    "values: down and up": Case(
        stack(
            shown(
                {"output": "{{ middleware.input + ['A'] }}"},
                onSuccess={"value": "{{ middleware.result.value + ['a'] }}"},
            ),
            shown(
                {"output": "{{ middleware.input + ['B'] }}"},
                onSuccess={"value": "{{ middleware.result.value + ['b'] }}"},
            ),
            input="{{ step.input + ['step'] }}",
            output="{{ step.result.value + ['out'] }}",
        ),
        ok(["in", "step", "A", "B", "b", "a", "out"]),
        ["in"],
    ),
    "values: what is null is written": Case(
        stack(shown({"output": None}, onSuccess={"value": "{{ [middleware.result.value] }}"})), ok([None]), "in"
    ),
    "values: an entry's input is the same in all phases": Case(
        stack(
            shown({"output": "in"}),
            shown(
                {"output": "deeper"},
                onSuccess={"value": "{{ middleware.input }}", "assign": {"log": "{{ middleware.input }}"}},
                onAlways={"assign": {"n": "{{ middleware.input }}"}},
            ),
            then="{{ [step.input, vars.log, vars.n] }}",
        ),
        ok(["in", "in", "in"]),
    ),
    "values: a cleanup sees the value shaped at its own position": Case(
        stack(
            shown(onSuccess={"value": "shaped"}, onAlways={"assign": {"log": "{{ middleware.result.value }}"}}),
            then="{{ vars.log }}",
        ),
        ok("shaped"),
    ),
    "values: the step's result is the outermost entry's": Case(
        stack(shown(onSuccess={"value": 1}), shown(onSuccess={"value": 2}), output="{{ step.result }}"),
        ok({"type": "success", "value": 1}),
    ),
    "failures: two translations, each on top": Case(
        uncaught(
            shown(onFailure={"code": "{{ 'Outer.' + middleware.result.code }}"}),
            shown(onFailure={"code": "Inner", "message": "in", "details": {"was": "{{ middleware.result.details }}"}}),
            target=failing("X", message="x", details=5, retryable=True),
        ),
        bad(
            "Outer.Inner",
            message="in",
            details={"was": 5},
            retryable=True,
            previous=bad(
                "Inner", message="in", retryable=True, previous=bad("X", message="x", details=5, previous=None)
            ),
        ),
    ),
    "failures: nothing written, nothing constructed": Case(
        uncaught(shown(onFailure=logs("f")), target=failing("X")), bad("X", previous=None)
    ),
    "failures: retryable alone": Case(
        uncaught(shown(onFailure={"retryable": False}), target=failing("X", retryable=True)),
        bad("X", retryable=False, previous=bad("X", retryable=True)),
    ),
    "failures: a type of one's own": Case(
        uncaught(shown(onFailure={"type": "Mine"}), target=failing("X")),
        {"type": "Mine", "code": "X", "previous": bad("X", previous=None)},
    ),
    "failures: severed": Case(
        uncaught(shown(onFailure={"code": "Y", "previous": None}), target=failing("X")), bad("Y", previous=None)
    ),
    "failures: a success is no type": Case(
        uncaught(shown(onFailure={"type": "{{ 'success' }}"}), target=failing("X")), bad(INVALID, previous=bad("X"))
    ),
    "failures: a cleanup sees the translation": Case(
        stack(
            shown(onFailure={"code": "Y"}, onAlways={"assign": {"log": "{{ middleware.result.code }}"}}),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("Y"),
    ),
    "failures: an entry does not handle its own": Case(
        uncaught(shown(onFailure={"code": "Outer"}), shown({"output": UNKNOWN}, onFailure={"code": "Own"})),
        bad("Outer", previous=bad(FAULT, previous=None)),
    ),
    "failures: a fault in a cleanup's assignment displaces": Case(
        uncaught(shown(onAlways={"assign": {"log": UNKNOWN}}), target=failing("X")), bad(FAULT, previous=bad("X"))
    ),
    "failures: over a success nothing is displaced": Case(
        uncaught(shown(onAlways={"assign": {"log": UNKNOWN}})), bad(FAULT, previous=None)
    ),
    "failures: a cleanup's own fault leaves what success shaped": Case(
        uncaught(shown(onSuccess={"value": UNKNOWN}, onAlways={"assign": {"log": UNKNOWN}})),
        bad(FAULT, previous=bad(FAULT, previous=None)),
    ),
    "when: false, and arguments that would fault": Case(
        stack(entry(TIMEOUT, onEntry={"when": False, "with": {"duration": UNKNOWN}, "output": "shaped"})),
        ok("shaped"),
        "in",
    ),
    "when: no boolean": Case(
        uncaught(entry(TIMEOUT, onEntry={"when": "{{ 1 }}", "with": {"duration": "PT5S"}})), bad(FAULT)
    ),
    "when: arguments of a phase without an action": Case(
        uncaught(timeout("PT5S", onSuccess={"with": {"x": 1}})), bad(INVALID)
    ),
    "when: they are not evaluated if it is gated off": Case(
        stack(timeout("PT5S", onSuccess={"when": "{{ false }}", "with": {"x": UNKNOWN}})), ok("in"), "in"
    ),
    "with: one expression": Case(
        uncaught(
            entry(RETRY, onEntry={"with": "{{ {'policies': [{'match': {'codes': ['*']}, 'attempts': 2}]} }}"}),
            target=failing("X"),
        ),
        bad(EXHAUSTED, details={"attempts": 2, "policy": 0}),
    ),
    "with: one expression that is no object": Case(
        uncaught(entry(TIMEOUT, onEntry={"with": "{{ 'PT5S' }}"})), bad(INVALID)
    ),
    "with: missing": Case(uncaught(entry(TIMEOUT)), bad(INVALID)),
    "flow level: a step is out of sight": Case(
        around(shown({"output": "{{ step.name }}"}), steps={"r": returned()}), bad(FAULT)
    ),
    "flow level: the graph's failure is shaped": Case(
        around(shown(onFailure={"code": "Y"}), steps={"r": {"action": "Raise", "result": {"code": "X"}}}),
        bad("Y", previous=bad("X")),
    ),
    "flow level: a failure that was handled is over when the graph returns": Case(
        around(
            shown(onSuccess={"value": "{{ failure == null }}"}),
            steps={"s": call(failing("X"), catch=[caught("done")]), "done": returned()},
        ),
        ok(True),
    ),
    "flow level: a failure that leaves the graph is being handled": Case(
        around(shown(onFailure={"message": "{{ failure.code }}"}), steps={"s": call(failing("X")), "done": returned()}),
        bad("X", message="X"),
    ),
    "flow level: validation of its arguments comes before the stack": Case(
        around(shown(onFailure={"code": "Seen"}), steps={"r": returned()}),
        bad(INVALID, previous=None),
        arguments={"bogus": 1},
    ),
}


# -- Finally -----------------------------------------------------------------------------------------------------------


FINALLYS = {
    "a success rises unchanged": Case(stack(cleanup(mock(value="other")), target=mock(value=1)), ok(1)),
    "a failure rises unchanged": Case(
        uncaught(cleanup(mock(value="other")), target=failing("X")), bad("X", previous=None)
    ),
    "over a success": Case(uncaught(cleanup(failing("C"))), bad("C", previous=None)),
    "over a failure": Case(
        uncaught(cleanup(failing("C")), target=failing("X")), bad("C", previous=bad("X", previous=None))
    ),
    "a timeout as its failure": Case(
        uncaught(cleanup(SLOW, middleware=[timeout("PT5S")]), target=failing("X")),
        {**LATE, "previous": bad("X", previous=None)},
    ),
    "a stack that is exhausted has its history before the displaced one": Case(
        uncaught(cleanup(failing("C"), middleware=[retry(2)]), target=failing("X")),
        bad(EXHAUSTED, previous=bad("C", previous=bad("X", previous=None))),
    ),
    "a stack that translates": Case(
        uncaught(cleanup(failing("C"), middleware=[shown(onFailure={"code": "T"})])),
        bad("T", previous=bad("C", previous=None)),
    ),
    "its bindings": Case(
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
    "what it assigned, its own phase reads": Case(
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
    "its failure arm": Case(
        stack(
            cleanup({**failing("C"), "onFailure": {"assign": {"log": "{{ call.result.code }}"}}}),
            then="{{ [failure.code, vars.log] }}",
        ),
        ok(["C", "C"]),
    ),
    "when: it depends on the result": Case(
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
    "when: gated off, its assignment stands": Case(
        stack(
            entry(FINALLY, onAlways={"when": False, "with": {"call": failing("C")}, **logs("kept")}),
            then="{{ vars.log }}",
        ),
        ok("kept"),
    ),
    "when: a fault is the phase's": Case(
        uncaught(entry(FINALLY, onAlways={"when": UNKNOWN, "with": {"call": mock()}}), target=failing("X")),
        bad(FAULT, previous=bad("X")),
    ),
    "with: a fault in its call is its failure": Case(
        uncaught(cleanup(mock(value=UNKNOWN)), target=failing("X")), bad(FAULT, previous=bad("X"))
    ),
    "a flow as its target": Case(
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
    "inner ones first": Case(stack(noting("A"), noting("B"), then="{{ vars.log }}"), ok("BA")),
    "a step's before its flow's": Case(
        flow(
            {
                "s": call(
                    {
                        "flow": subflow(
                            {"s": call(mock(), middleware=[noting("step ")]), "done": returned()},
                            middleware=[noting("flow")],
                            **LOGGED,
                        ),
                        "onSuccess": {"value": "{{ flow.vars.log }}"},
                    }
                ),
                "done": returned(),
            }
        ),
        ok("step flow"),
    ),
    "inside a retry: after each attempt": Case(
        stack(
            retry(3, onFailure={"assign": {"log": "{{ vars.log }}"}}),
            noting("x"),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("xxx"),
    ),
    "outside a retry: once": Case(stack(noting("x"), retry(3), target=failing("X"), then="{{ vars.log }}"), ok("x")),
    "a cleanup that fails is retried by what is outside": Case(
        uncaught(retry(2, "C"), cleanup(failing("C"))), bad(EXHAUSTED, previous=bad("C", previous=None))
    ),
    "not for an entry that was never established": Case(
        stack(
            entry(
                FINALLY, onEntry={"output": UNKNOWN}, onAlways={"with": {"call": {**mock(), "onSuccess": logs("ran")}}}
            ),
            then="{{ vars.log }}",
        ),
        ok(""),
    ),
    "of a flow that raises": Case(
        around(cleanup(failing("C")), steps={"r": {"action": "Raise", "result": {"code": "X"}}}),
        bad("C", previous=bad("X", previous=None)),
    ),
    "of a flow: its failure is not caught inside": Case(
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
