"""Tables of flows and their Results: how failures are selected, chained and raised; and Match."""

from typing import Any

import pytest

from tests.support.flow_cases import FAULT, UNKNOWN, Case, bad, handling, ok, one_step, passed, play, raising
from tests.support.flows import call, caught, failing, flow, mock, returned, subflow

# -- failures ----------------------------------------------------------------------------------------------------------


def selecting(envelope: dict[str, Any], *clauses: Any) -> dict[str, Any]:
    """A flow that returns which clause selected a failure."""
    catch = [{"match": match, "output": index, "next": "done"} for index, match in enumerate(clauses)]
    return one_step(call(mock(failure=envelope), catch=catch))


CHAIN = {"type": "error", "code": "B", "previous": {"type": "error", "code": "A", "previous": None}}

FAILURES = {
    "match: the first clause that matches": Case(
        selecting({"code": "A.B"}, {"codes": ["A"]}, {"codes": ["A.*"]}, {"codes": ["*"]}), ok(1)
    ),
    "match: a prefix matches whole segments": Case(
        selecting({"code": "A.BC"}, {"codes": ["A.B.*", "A.B"]}, {"codes": ["A.*"]}), ok(1)
    ),
    "match: retryable false": Case(
        selecting({"code": "A", "retryable": False}, {"retryable": True}, {"retryable": False}), ok(1)
    ),
    "clause: reads the failing step": Case(
        handling(
            failing("A"),
            returned(),
            clause={"output": "{{ [step.name, step.result.code, failure.code, has(step.metadata.exitedAt)] }}"},
        ),
        ok(["s", "A", "A", True]),
    ),
    "clause: the output is the step's input": Case(handling(failing("A"), returned(), input=1), ok("in"), "in"),
    "clause: the output does not see the clause's assignments": Case(
        handling(
            failing("A"),
            returned("{{ [step.input, vars.a] }}"),
            clause={"output": "{{ has(vars.a) }}", "assign": {"a": 1}},
        ),
        ok([False, 1]),
    ),
    "clause: a fault chains the failure that it displaces": Case(
        handling(failing("A"), returned(), clause={"output": UNKNOWN}),
        bad(FAULT, previous={"type": "error", "code": "A"}),
    ),
    "chain: a handler that fails": Case(
        handling(failing("A"), call(failing("B"))), bad("B", previous={"type": "error", "code": "A", "previous": None})
    ),
    "chain: a handler that faults": Case(
        handling(failing("A"), passed(output=UNKNOWN)), bad(FAULT, previous={"type": "error", "code": "A"})
    ),
    "chain: a Return that faults": Case(
        handling(failing("A"), returned(UNKNOWN)), bad(FAULT, previous={"type": "error", "code": "A"})
    ),
    "chain: a Raise that faults": Case(
        handling(failing("A"), raising(code=UNKNOWN)), bad(FAULT, previous={"type": "error", "code": "A"})
    ),
    "chain: a handler of a handler": Case(
        handling(failing("A"), call(failing("B"), catch=[caught("h1")]), raising(code="C")), bad("C", previous=CHAIN)
    ),
    "chain: a subflow in a handler starts without a failure": Case(
        handling(failing("A"), call({"flow": subflow({"r": raising(code="B", details="{{ failure == null }}")})})),
        bad("B", details=True, previous={"type": "error", "code": "A"}),
    ),
    "chain: a bare Raise in a subflow has nothing to raise": Case(
        handling(failing("A"), call({"flow": subflow({"r": raising()})})),
        bad("System.EmptyRaise", previous={"type": "error", "code": "A"}),
    ),
    "chain: a success clears the failure": Case(
        handling(failing("A"), call(mock(), next="h1"), raising(code="B")), bad("B", previous=None)
    ),
    "chain: a success before the failure does not clear it": Case(
        flow({"p": passed("s"), "s": call(failing("A"), catch=[caught("r")]), "done": returned(), "r": raising()}),
        bad("A", previous=None),
    ),
    "raise: nothing is inherited": Case(
        handling(
            mock(failure={"code": "A", "type": "timeout", "message": "m", "details": 1, "retryable": True}),
            raising(code="B"),
        ),
        bad("B", message=None, details=None, retryable=None, previous={"type": "timeout", "code": "A", "message": "m"}),
    ),
    "raise: every field computed": Case(
        handling(
            failing("A", message="was"),
            raising(
                type="{{ 'Mine' }}",
                code="{{ 'Wrapped.' + failure.code }}",
                message="{{ failure.message + '!' }}",
                details={"of": ["{{ step.input }}"]},
                retryable="{{ step.input > 1.0 }}",
                previous="{{ null }}",
            ),
        ),
        bad("Wrapped.A", type="Mine", message="was!", details={"of": [5]}, retryable=True, previous=None),
        5,
    ),
    "raise: a given previous": Case(
        handling(failing("A"), raising(code="B", previous={"type": "timeout", "code": "{{ 'Old.' + failure.code }}"})),
        bad("B", previous={"type": "timeout", "code": "Old.A", "previous": None}),
    ),
    "raise: a retryable that is null": Case(flow({"r": raising(code="B", retryable=None)}), bad("B", retryable=None)),
    "raise: its fields are evaluated before its exit": Case(
        flow({"r": raising(code="B", details="{{ [has(step.metadata.enteredAt), has(step.metadata.exitedAt)] }}")}),
        bad("B", details=[True, False]),
    ),
    "raise: a code of the engine": Case(flow({"r": raising(code="System.Mine")}), bad("System.Mine")),
    "raise: a bare Raise repeats the failure unchanged": Case(
        handling(
            mock(failure={"code": "A", "details": {"x": 1}, "previous": {"type": "error", "code": "Z"}}), raising()
        ),
        bad("A", details={"x": 1}, previous={"type": "error", "code": "Z", "previous": None}),
    ),
}


# -- Match -------------------------------------------------------------------------------------------------------------


def matching(*cases: Any, default: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "action": "Match",
        "cases": [{"next": "done", **case} for case in cases],
        "default": {"next": "done", "output": "default", **(default or {})},
        **fields,
    }


MATCHES = {
    "the first case that is true": Case(
        one_step(
            matching({"when": "{{ false }}", "output": 0}, {"when": "{{ true }}", "output": 1}, {"when": UNKNOWN})
        ),
        ok(1),
    ),
    "no cases": Case(one_step(matching()), ok("default")),
    "the cases test the shaped input, and it is passed on": Case(
        one_step(matching({"when": "{{ match.input == 2.0 && step.input == 1.0 }}"}, input="{{ step.input + 1.0 }}")),
        ok(2),
        1,
    ),
    "a clause assigns": Case(
        one_step(
            matching({"when": "{{ true }}", "assign": {"a": "{{ match.input }}"}, "output": None}),
            then="{{ [step.input, vars.a] }}",
        ),
        ok([None, "in"]),
        "in",
    ),
    "a predicate that is a string": Case(one_step(matching({"when": "{{ 'true' }}"})), bad(FAULT)),
    "a predicate that is null": Case(one_step(matching({"when": "{{ null }}"})), bad(FAULT)),
    "a predicate that faults after a false one": Case(
        one_step(matching({"when": "{{ false }}"}, {"when": UNKNOWN})), bad(FAULT)
    ),
    "an output that faults does not fall through": Case(
        one_step(matching({"when": "{{ true }}", "output": UNKNOWN})), bad(FAULT)
    ),
    "an input that faults": Case(one_step(matching(input=UNKNOWN)), bad(FAULT)),
    "match is not in scope in its own input": Case(one_step(matching(input="{{ match.input }}")), bad(FAULT)),
    "a Match in a handler reads the failure": Case(
        handling(failing("A"), matching({"when": "{{ failure.code == 'A' }}", "output": "seen"})), ok("seen")
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    play(FAILURES[name])


@pytest.mark.parametrize("name", MATCHES)
def test_matches(name: str) -> None:
    play(MATCHES[name])
