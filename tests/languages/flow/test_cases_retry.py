"""Tables of flows and their Results: Retry, alone and with others."""

from typing import Any

import pytest

from tests.support.flow_cases import (
    EXCEEDED,
    EXHAUSTED,
    FAULT,
    INVALID,
    TICK,
    UNKNOWN,
    Case,
    around,
    bad,
    fails_until,
    logging,
    ok,
    play,
    policies,
    policy,
    stack,
    uncaught,
)
from tests.support.flows import RETRY, call, caught, entry, failing, flow, mock, retry, returned, subflow, timeout

# -- Retry -------------------------------------------------------------------------------------------------------------

GAPS = "{{ durationToIso8601(now() - timestamp(step.metadata.enteredAt)) }}"


def waits(backoff: Any, attempts: int, **phases: Any) -> dict[str, Any]:
    """A flow that returns the time between its start and the start of its last attempt."""
    return stack(
        policies(policy(["*"], attempts, backoff=backoff), **phases),
        target={**failing("X"), "onFailure": {"assign": {"log": GAPS}}},
        then="{{ vars.log }}",
    )


RETRIES = {
    "an exhausted retry chains the last failure": Case(
        uncaught(retry(3), target=failing("X", retryable=True)),
        bad(
            EXHAUSTED,
            details={"attempts": 3, "policy": 0},
            retryable=None,
            previous=bad("X", retryable=True, previous=None),
        ),
    ),
    "a budget of one attempt": Case(
        uncaught(retry(1), target=failing("X")), bad(EXHAUSTED, details={"attempts": 1, "policy": 0}, previous=bad("X"))
    ),
    "no policy matches": Case(
        uncaught(retry(3, "Y.*", onFailure={"code": "Shaped"}), target=failing("X")), bad("Shaped", previous=bad("X"))
    ),
    "the first policy that matches counts, each on its own": Case(
        uncaught(
            policies(policy(["A"], 3), policy(["*"], 2), onFailure={"assign": TICK}),
            target=mock(failure={"code": "{{ vars.n == 1.0 ? 'B' : 'A' }}"}),
        ),
        bad(EXHAUSTED, details={"attempts": 4, "policy": 0}, previous=bad("A")),
    ),
    "a policy that matches retryable failures": Case(
        uncaught(
            policies({"match": {"retryable": True}, "attempts": 5}, onFailure={"assign": TICK}),
            target=mock(
                failure={"code": "X", "retryable": "{{ vars.n < 2.0 ? true : null }}", "details": "{{ vars.n }}"}
            ),
        ),
        bad("X", details=2, retryable=None),
    ),
    "a policy that matches types": Case(
        uncaught(
            policies({"match": {"types": ["timeout"]}, "attempts": 2}), timeout("PT1S"), target=mock(delay="PT1H")
        ),
        bad(
            EXHAUSTED,
            details={"attempts": 2, "policy": 0},
            previous={"type": "timeout", "code": EXCEEDED, "previous": None},
        ),
    ),
    "a validation failure is retried": Case(
        stack(
            retry(3, INVALID, onFailure={"assign": TICK}),
            target=mock(delay="{{ vars.n < 1.0 ? 'soon' : 'PT0S' }}", value="{{ vars.n }}"),
        ),
        ok(1),
    ),
    "an evaluation error is retried": Case(
        stack(
            retry(3, FAULT, onFailure={"assign": TICK}),
            target=mock(value="{{ vars.n < 1.0 ? nothing.there : vars.n }}"),
        ),
        ok(1),
    ),
    "a refused subflow is retried": Case(
        stack(
            retry(3, onFailure={"assign": TICK}),
            target={
                "flow": subflow(
                    {"r": returned("{{ vars.a }}")}, parameters={"type": "object", "properties": {"a": {"minimum": 1}}}
                ),
                "with": {"a": "{{ vars.n }}"},
            },
        ),
        ok(1),
    ),
    "the attempt that succeeds": Case(
        stack(
            retry(
                5,
                onFailure={"assign": TICK},
                onSuccess={"value": "{{ [middleware.metadata.attempt, middleware.result.value] }}"},
            ),
            target=fails_until(2.0),
        ),
        ok([3, 2]),
    ),
    "variables are restored, also to unset": Case(
        stack(
            retry(2),
            target={
                **failing("X"),
                "onFailure": {"assign": {"log": "{{ vars.log + (has(vars.seen) ? 'again' : 'first') }}", "seen": True}},
            },
            then="{{ vars.log }}",
        ),
        ok("first"),
    ),
    "the entry's assignments survive the restore": Case(
        stack(
            entry(RETRY, onEntry={"with": {"policies": [policy(["*"], 2)]}, "assign": {"log": "entered "}}),
            target={**failing("X"), "onFailure": {"assign": {"log": "{{ vars.log + 'failed ' }}"}}},
            then="{{ vars.log }}",
        ),
        ok("entered failed "),
    ),
    "onFailure reads the variables of the failed attempt": Case(
        stack(
            retry(2, onFailure={"assign": {"n": "{{ vars.log + middleware.result.code }}"}}),
            target={**failing("X"), "onFailure": {"assign": {"log": "after "}}},
            then="{{ [vars.n, vars.log] }}",
        ),
        ok(["after " + EXHAUSTED, "after "]),
    ),
    "a timeout in a gap finds the restored variables": Case(
        stack(
            timeout("PT5S"),
            policies(policy(["*"], 3, backoff={"initial": "PT1H"}), onFailure={"assign": TICK}),
            target={**failing("X"), "onFailure": {"assign": {"log": "dirty"}}},
            then="{{ [failure.code, vars.n, vars.log] }}",
        ),
        ok([EXCEEDED, 1, ""]),
    ),
    "every attempt receives the entry's output": Case(
        stack(
            entry(
                RETRY,
                onEntry={"with": {"policies": [policy(["*"], 3)]}, "output": "{{ middleware.input + ['down'] }}"},
                onFailure={"assign": TICK},
            ),
            target=mock(failure="{{ vars.n < 2.0 ? {'code': 'X'} : null }}"),
        ),
        ok(["in", "down"]),
        ["in"],
    ),
    "inner entries run for every attempt": Case(
        stack(
            retry(3, onFailure={"assign": {"log": "{{ vars.log }}"}}),
            logging("B"),
            target=failing("X"),
            then="{{ vars.log }}",
        ),
        ok("BeBfBa" * 3),
    ),
    "outer entries see one success": Case(
        stack(logging("A"), retry(3, onFailure={"assign": TICK}), target=fails_until(2.0), then="{{ vars.log }}"),
        ok("AeAsAa"),
    ),
    "gated off on entry": Case(
        uncaught(
            entry(RETRY, onEntry={"when": "{{ false }}", "with": {"policies": [policy(["*"], 3)]}}), target=failing("X")
        ),
        bad("X", previous=None),
    ),
    "gated off for one failure": Case(
        uncaught(
            retry(5, onFailure={"when": "{{ middleware.result.details < 2.0 }}", "assign": TICK}),
            target=failing("X", details="{{ vars.n }}"),
        ),
        bad("X", details=2, previous=None),
    ),
    "envelope keys apply to the exhausted failure only": Case(
        uncaught(retry(2, onFailure={"code": "{{ 'Wrapped.' + middleware.result.code }}"}), target=failing("X")),
        bad(
            f"Wrapped.{EXHAUSTED}",
            details={"attempts": 2, "policy": 0},
            previous=bad(EXHAUSTED, previous=bad("X", previous=None)),
        ),
    ),
    "envelope keys are not evaluated for retried failures": Case(
        stack(
            retry(3, onFailure={"message": "{{ vars.n < 1.0 ? nothing.there : 'told' }}", "assign": TICK}),
            target=failing("X"),
            then="{{ failure.message }}",
        ),
        ok("told"),
    ),
    "a fault in onFailure chains the failure": Case(
        uncaught(retry(3, onFailure={"assign": {"n": UNKNOWN}}), target=failing("X")),
        bad(FAULT, previous=bad("X", previous=None)),
    ),
    "a delay that is not a duration": Case(
        uncaught(retry(3, onFailure={"with": {"delay": "soon"}}), target=failing("X")), bad(INVALID, previous=bad("X"))
    ),
    "one retry inside another": Case(
        uncaught(retry(2, EXHAUSTED), retry(2, "X"), target=failing("X")),
        bad(EXHAUSTED, details={"attempts": 2, "policy": 0}, previous=bad(EXHAUSTED, previous=bad("X", previous=None))),
    ),
    "policies: an empty list": Case(uncaught(policies(), target=failing("X")), bad(INVALID)),
    "policies: zero attempts": Case(uncaught(policies(policy(["*"], 0)), target=failing("X")), bad(INVALID)),
    "policies: half an attempt": Case(uncaught(policies(policy(["*"], 1.5)), target=failing("X")), bad(INVALID)),
    "policies: an empty matcher": Case(
        uncaught(policies({"match": {}, "attempts": 2}), target=failing("X")), bad(INVALID)
    ),
    "policies: a matcher of successes": Case(
        uncaught(policies({"match": {"types": ["success"]}, "attempts": 2})), bad(INVALID)
    ),
    "policies: a rate below one": Case(
        uncaught(policies(policy(["*"], 2, backoff={"initial": "PT1S", "rate": 0.5}))), bad(INVALID)
    ),
    "policies: a back-off without initial": Case(
        uncaught(policies(policy(["*"], 2, backoff={"rate": 2}))), bad(INVALID)
    ),
    "policies: computed": Case(
        uncaught(policies(policy(["{{ step.input }}"], "{{ 1 + 1 }}")), target=failing("X")),
        bad(EXHAUSTED, details={"attempts": 2, "policy": 0}),
        "X",
    ),
    "waits: zero": Case(waits({"initial": "PT0S"}, 4), ok("PT0S")),
    "waits: negative": Case(waits({"initial": "-PT1H", "rate": 3}, 4), ok("PT0S")),
    "waits: constant": Case(waits({"initial": "PT10S"}, 4), ok("PT30S")),
    "waits: growing": Case(waits({"initial": "PT10S", "rate": 2}, 4), ok("PT1M10S")),
    "waits: growing up to max": Case(waits({"initial": "PT10S", "rate": 2, "max": "PT15S"}, 4), ok("PT40S")),
    "waits: max below initial": Case(waits({"initial": "PT10S", "max": "PT1S"}, 3), ok("PT2S")),
    "waits: overridden": Case(
        waits({"initial": "PT10S", "rate": 2}, 4, onFailure={"with": {"delay": "PT1S"}}), ok("PT3S")
    ),
    "waits: an override of null": Case(
        waits({"initial": "PT10S"}, 3, onFailure={"with": {"delay": None}}), ok("PT20S")
    ),
    "waits: an override of one gap does not shift the others": Case(
        waits(
            {"initial": "PT10S", "rate": 2},
            4,
            onFailure={"with": {"delay": "{{ middleware.metadata.attempt == 2.0 ? 'PT1S' : null }}"}},
        ),
        ok("PT51S"),
    ),
    "waits: an override may exceed max": Case(
        waits({"initial": "PT1S", "max": "PT1S"}, 2, onFailure={"with": {"delay": "PT1H"}}), ok("PT1H")
    ),
    "flow level: runs the graph again": Case(
        around(
            retry(3, onFailure={"assign": TICK}),
            steps={
                "p": {"action": "Pass", "assign": {"log": "{{ vars.log + 'p' }}"}, "next": "s"},
                "s": call(fails_until(2.0)),
                "done": returned("{{ [vars.log, vars.n, step.input] }}"),
            },
        ),
        ok(["p", 2, 2]),
    ),
    "flow level: exhausted": Case(
        around(retry(2), steps={"r": {"action": "Raise", "result": {"code": "X"}}}),
        bad(EXHAUSTED, details={"attempts": 2, "policy": 0}),
    ),
    "flow level: the caller catches the exhausted failure": Case(
        flow(
            {
                "s": call(
                    {"flow": {**subflow({"s": call(failing("X")), "done": returned()}), "middleware": [retry(2)]}},
                    catch=[caught("h", EXHAUSTED)],
                ),
                "done": returned(),
                "h": returned("{{ failure.details.attempts }}"),
            }
        ),
        ok(2),
    ),
}


@pytest.mark.parametrize("name", RETRIES)
def test_retries(name: str) -> None:
    play(RETRIES[name])
