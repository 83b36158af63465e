"""Cases in the manner of a conformance corpus: failures, how they are selected, chained and raised; and Match."""

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
    passed,
    play,
    raising,
)
from tests.support.flows import (
    call,
    caught,
    failing,
    flow,
    mock,
    returned,
    subflow,
)

# -- failures ----------------------------------------------------------------------------------------------------------


def selecting(envelope: dict[str, Any], *clauses: Any) -> dict[str, Any]:
    """A flow that returns which clause selected a failure."""
    catch = [{"match": match, "output": index, "next": "done"} for index, match in enumerate(clauses)]
    return flow({"s": call(mock(failure=envelope), catch=catch), "done": returned()})


CHAIN = {"type": "error", "code": "B", "previous": {"type": "error", "code": "A", "previous": None}}

FAILURES = {
    "match: the first of several": Case(
        selecting({"code": "A.B"}, {"codes": ["A"]}, {"codes": ["A.*"]}, {"codes": ["*"]}), ok(1)
    ),
    "match: a prefix of whole segments": Case(
        selecting({"code": "A.BC"}, {"codes": ["A.B.*", "A.B"]}, {"codes": ["A.*"]}), ok(1)
    ),
    "match: a prefix is not the code itself": Case(
        selecting({"code": "A.B"}, {"codes": ["A.B.*"]}, {"codes": ["*"]}), ok(1)
    ),
    "match: a retryable that is null says nothing": Case(
        selecting({"code": "A", "retryable": None}, {"retryable": True}, {"retryable": False}, {"codes": ["A"]}), ok(2)
    ),
    "match: a retryable that is absent says nothing": Case(
        selecting({"code": "A"}, {"retryable": True}, {"retryable": False}, {"codes": ["A"]}), ok(2)
    ),
    "match: retryable false": Case(
        selecting({"code": "A", "retryable": False}, {"retryable": True}, {"retryable": False}), ok(1)
    ),
    "match: all members": Case(
        selecting(
            {"code": "A.B", "type": "timeout", "retryable": True},
            {"codes": ["A.*"], "types": ["error"], "retryable": True},
            {"codes": ["A.*"], "types": ["error", "timeout"], "retryable": False},
            {"codes": ["X.*", "A.*"], "types": ["timeout"], "retryable": True},
        ),
        ok(2),
    ),
    "match: none": Case(selecting({"code": "A"}, {"codes": ["B"]}, {"types": ["timeout"]}), bad("A")),
    "match: a type of one's own": Case(
        selecting({"code": "A", "type": "Mine"}, {"types": ["error"]}, {"types": ["Mine"]}), ok(1)
    ),
    "clause: reads the failing step": Case(
        handled(
            failing("A"),
            returned(),
            clause={"output": "{{ [step.name, step.result.code, failure.code, has(step.metadata.exitedAt)] }}"},
        ),
        ok(["s", "A", "A", True]),
    ),
    "clause: the output passes what the step received": Case(
        handled(failing("A"), returned(), input=1), ok("in"), "in"
    ),
    "clause: the output sees the variables of before": Case(
        handled(
            failing("A"),
            returned("{{ [step.input, vars.a] }}"),
            clause={"output": "{{ has(vars.a) }}", "assign": {"a": 1}},
        ),
        ok([False, 1]),
    ),
    "clause: a fault leaves the frame with what it displaced": Case(
        handled(failing("A"), returned(), clause={"output": UNKNOWN}),
        bad(FAULT, previous={"type": "error", "code": "A"}),
    ),
    "chain: a handler that fails": Case(
        handled(failing("A"), call(failing("B"))), bad("B", previous={"type": "error", "code": "A", "previous": None})
    ),
    "chain: a handler that faults": Case(
        handled(failing("A"), passed(output=UNKNOWN)), bad(FAULT, previous={"type": "error", "code": "A"})
    ),
    "chain: a Return that faults": Case(
        handled(failing("A"), returned(UNKNOWN)), bad(FAULT, previous={"type": "error", "code": "A"})
    ),
    "chain: a Raise that faults": Case(
        handled(failing("A"), raising(code=UNKNOWN)), bad(FAULT, previous={"type": "error", "code": "A"})
    ),
    "chain: a handler of a handler": Case(
        handled(failing("A"), call(failing("B"), catch=[caught("h1")]), raising(code="C")), bad("C", previous=CHAIN)
    ),
    "chain: a handler's subflow begins without one": Case(
        handled(failing("A"), call({"flow": subflow({"r": raising(code="B", details="{{ failure == null }}")})})),
        bad("B", details=True, previous={"type": "error", "code": "A"}),
    ),
    "chain: a bare Raise in a subflow has nothing to raise": Case(
        handled(failing("A"), call({"flow": subflow({"r": raising()})})),
        bad("System.EmptyRaise", previous={"type": "error", "code": "A"}),
    ),
    "chain: cleared by a success": Case(
        handled(failing("A"), call(mock(), next="h1"), raising(code="B")), bad("B", previous=None)
    ),
    "chain: a Match is a success": Case(
        handled(failing("A"), {"action": "Match", "cases": [], "default": {"next": "h1"}}, raising()),
        bad("System.EmptyRaise", previous=None),
    ),
    "chain: a success before the failure does not clear it": Case(
        flow({"p": passed("s"), "s": call(failing("A"), catch=[caught("r")]), "done": returned(), "r": raising()}),
        bad("A", previous=None),
    ),
    "raise: nothing is inherited": Case(
        handled(
            mock(failure={"code": "A", "type": "timeout", "message": "m", "details": 1, "retryable": True}),
            raising(code="B"),
        ),
        bad("B", message=None, details=None, retryable=None, previous={"type": "timeout", "code": "A", "message": "m"}),
    ),
    "raise: every field computed": Case(
        handled(
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
    "raise: a previous of one's own": Case(
        handled(failing("A"), raising(code="B", previous={"type": "timeout", "code": "{{ 'Old.' + failure.code }}"})),
        bad("B", previous={"type": "timeout", "code": "Old.A", "previous": None}),
    ),
    "raise: a code that is no string": Case(flow({"r": raising(code="{{ 5 }}")}), bad(INVALID)),
    "raise: a type that is a success": Case(
        handled(failing("A"), raising(code="B", type="{{ 'success' }}")),
        bad(INVALID, previous={"type": "error", "code": "A"}),
    ),
    "raise: a retryable that is none": Case(flow({"r": raising(code="B", retryable="{{ 'yes' }}")}), bad(INVALID)),
    "raise: a retryable that is null": Case(flow({"r": raising(code="B", retryable=None)}), bad("B", retryable=None)),
    "raise: its fields are evaluated while it acts, before its exit": Case(
        flow({"r": raising(code="B", details="{{ [has(step.metadata.enteredAt), has(step.metadata.exitedAt)] }}")}),
        bad("B", details=[True, False]),
    ),
    "raise: a code of the engine": Case(flow({"r": raising(code="System.Mine")}), bad("System.Mine")),
    "raise: the same failure again, unchanged": Case(
        handled(
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
    "the first that holds": Case(
        flow(
            {
                "m": matching(
                    {"when": "{{ false }}", "output": 0}, {"when": "{{ true }}", "output": 1}, {"when": UNKNOWN}
                ),
                "done": returned(),
            }
        ),
        ok(1),
    ),
    "no case at all": Case(flow({"m": matching(), "done": returned()}), ok("default")),
    "the shaped input is what is tested and passed": Case(
        flow(
            {
                "m": matching(
                    {"when": "{{ match.input == 2.0 && step.input == 1.0 }}"}, input="{{ step.input + 1.0 }}"
                ),
                "done": returned(),
            }
        ),
        ok(2),
        1,
    ),
    "a clause assigns": Case(
        flow(
            {
                "m": matching({"when": "{{ true }}", "assign": {"a": "{{ match.input }}"}, "output": None}),
                "done": returned("{{ [step.input, vars.a] }}"),
            }
        ),
        ok([None, "in"]),
        "in",
    ),
    "a predicate that is no boolean": Case(
        flow({"m": matching({"when": "{{ 'true' }}"}), "done": returned()}), bad(FAULT)
    ),
    "a predicate that is null": Case(flow({"m": matching({"when": "{{ null }}"}), "done": returned()}), bad(FAULT)),
    "a predicate that faults behind one that does not hold": Case(
        flow({"m": matching({"when": "{{ false }}"}, {"when": UNKNOWN}), "done": returned()}), bad(FAULT)
    ),
    "an output that faults does not fall through": Case(
        flow({"m": matching({"when": "{{ true }}", "output": UNKNOWN}), "done": returned()}), bad(FAULT)
    ),
    "an input that faults": Case(flow({"m": matching(input=UNKNOWN), "done": returned()}), bad(FAULT)),
    "match is out of scope in its own input": Case(
        flow({"m": matching(input="{{ match.input }}"), "done": returned()}), bad(FAULT)
    ),
    "a failure is read while it is handled": Case(
        handled(failing("A"), matching({"when": "{{ failure.code == 'A' }}", "output": "seen"})), ok("seen")
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    play(FAILURES[name])


@pytest.mark.parametrize("name", MATCHES)
def test_matches(name: str) -> None:
    play(MATCHES[name])
