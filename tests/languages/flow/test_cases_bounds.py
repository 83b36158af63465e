"""Cases in the manner of a conformance corpus: Timeout and Loop, alone and with others."""

import pytest

from tests.support.flow_cases import (
    EXCEEDED,
    FAULT,
    INVALID,
    LATE,
    SLOW,
    TICK,
    UNKNOWN,
    Case,
    around,
    bad,
    fails_until,
    logging,
    logs,
    loop,
    ok,
    play,
    shown,
    stack,
    uncaught,
)
from tests.support.flows import (
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

# -- Timeout -----------------------------------------------------------------------------------------------------------


TIMEOUTS = {
    "exceeded": Case(uncaught(timeout("PT5S"), target=SLOW), {**LATE, "previous": None}),
    "in time": Case(stack(timeout("PT5S"), target=mock(delay="PT4S", value=1)), ok(1)),
    "a failure in time": Case(
        uncaught(timeout("PT5S"), target=mock(delay="PT4S", failure={"code": "X"})), bad("X", previous=None)
    ),
    "no time at all": Case(uncaught(timeout("PT0S"), target=SLOW), LATE),
    "less than no time": Case(uncaught(timeout("-PT5S"), target=SLOW), LATE),
    "gated off": Case(
        stack(
            entry(TIMEOUT, onEntry={"when": "{{ false }}", "with": {"duration": "PT1S"}}),
            target=mock(delay="PT9S", value=1),
        ),
        ok(1),
    ),
    "a duration that is none": Case(uncaught(timeout("5s"), target=mock()), bad(INVALID)),
    "a duration that is a number": Case(uncaught(timeout("{{ 5 }}"), target=mock()), bad(INVALID)),
    "the failure passes by its own entry": Case(
        uncaught(timeout("PT5S", onFailure={"code": "Own"}), target=SLOW), {**LATE, "previous": None}
    ),
    "the failure is shaped further out": Case(
        uncaught(shown(onFailure={"code": "Slow"}), timeout("PT5S"), target=SLOW),
        {"type": "timeout", "code": "Slow", "previous": LATE},
    ),
    "its own cleanup sees the failure": Case(
        stack(
            timeout("PT5S", onAlways={"assign": {"log": "{{ middleware.result.code }}"}}),
            target=SLOW,
            then="{{ vars.log }}",
        ),
        ok(EXCEEDED),
    ),
    "cleanups inside see the cancellation and its cause": Case(
        stack(
            timeout("PT5S"),
            shown(
                onAlways={
                    "assign": {
                        "log": "{{ [middleware.result.type, middleware.result.code, middleware.result.previous.code] }}"
                    }
                }
            ),
            target=SLOW,
            then="{{ vars.log }}",
        ),
        ok(["cancellation", "System.Cancelled", EXCEEDED]),
    ),
    "only cleanups take part": Case(
        stack(timeout("PT5S"), logging("B"), target={**SLOW, "onFailure": logs("arm")}, then="{{ vars.log }}"),
        ok("BeBa"),
    ),
    "a cleanup that fails stays at the head": Case(
        uncaught(timeout("PT5S"), cleanup(failing("C")), target=SLOW),
        bad("C", previous={"type": "cancellation", "code": "System.Cancelled", "previous": {**LATE, "previous": None}}),
    ),
    "two cleanups that fail": Case(
        uncaught(timeout("PT5S"), cleanup(failing("D")), cleanup(failing("C")), target=SLOW),
        bad("D", previous=bad("C", previous={"type": "cancellation", "code": "System.Cancelled", "previous": LATE})),
    ),
    "a longer one around a shorter one": Case(uncaught(timeout("PT9S"), timeout("PT5S"), target=SLOW), LATE),
    "a shorter one around a longer one": Case(
        stack(timeout("PT5S"), timeout("PT9S", onAlways=logs("in")), target=SLOW, then="{{ vars.log }}"), ok("in")
    ),
    "around a retry: all attempts together": Case(
        stack(
            timeout("PT5S"),
            retry(9, onFailure={"assign": TICK}),
            target=mock(delay="PT2S", failure={"code": "X"}),
            then="{{ [failure.code, vars.n] }}",
        ),
        ok([EXCEEDED, 2]),
    ),
    "inside a retry: each attempt": Case(
        stack(
            retry(3, EXCEEDED, onFailure={"assign": TICK}),
            timeout("PT5S"),
            target=mock(delay="{{ vars.n < 2.0 ? 'PT1H' : 'PT1S' }}", value="{{ vars.n }}"),
        ),
        ok(2),
    ),
    "the deadline": Case(
        stack(
            entry(
                TIMEOUT, onEntry={"with": {"duration": "PT5M"}, "assign": {"log": "{{ middleware.metadata.deadline }}"}}
            ),
            then="{{ string(timestamp(vars.log) - timestamp(execution.metadata.enteredAt)) }}",
        ),
        ok("300s"),
    ),
    "the deadline further on": Case(
        stack(timeout("PT5M", onSuccess={"value": "{{ has(middleware.metadata.deadline) }}"})), ok(True)
    ),
    "around a graph that sleeps": Case(
        around(timeout("PT5S"), steps={"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}),
        LATE,
    ),
    "around a fan-out": Case(
        around(
            timeout("PT5S"),
            steps={
                "g": {"action": "Gather", "over": [1, 2], "call": SLOW, "next": "done", "catch": [caught("done")]},
                "done": returned(),
            },
        ),
        {**LATE, "previous": None},
    ),
    "variables that were assigned before it remain": Case(
        stack(timeout("PT5S"), shown({"assign": {"log": "kept"}}), target=SLOW, then="{{ vars.log }}"), ok("kept")
    ),
    "the failure context chains in a handler": Case(
        flow(
            {
                "a": call(failing("A"), catch=[caught("b")]),
                "b": call(SLOW, middleware=[timeout("PT5S")]),
                "done": returned(),
            }
        ),
        {**LATE, "previous": bad("A", previous=None)},
    ),
}


# -- Loop --------------------------------------------------------------------------------------------------------------


THRICE = "{{ middleware.metadata.iteration < 3.0 }}"
MORE = {**mock(), "input": "{{ call.input + 1.0 }}"}

LOOPS = {
    "once": Case(stack(loop("{{ false }}"), target=MORE), ok(1), 0),
    "each run's value is the next one's input": Case(stack(loop(THRICE), target=MORE), ok(3), 0),
    "a value that is shaped is what is carried": Case(
        stack(loop(THRICE, onSuccess={"value": "{{ middleware.result.value * 10.0 }}"}), target=MORE), ok(1110), 0
    ),
    "the first run's input is what the entry passes down": Case(
        stack(loop(THRICE, onEntry={"output": 100}), target=MORE), ok(103), 0
    ),
    "no run: what the entry made": Case(
        stack(loop(THRICE, onEntry={"when": "{{ false }}", "output": "{{ middleware.input + 5.0 }}"}), target=MORE),
        ok(5),
        0,
    ),
    "no run: onSuccess has no part in it": Case(
        stack(loop(THRICE, onEntry={"when": "{{ false }}"}, onSuccess={"value": "never"}), target=failing("X")),
        ok("in"),
        "in",
    ),
    "no run: the cleanup has": Case(
        stack(loop(THRICE, onEntry={"when": "{{ false }}"}, onAlways=logs("a")), then="{{ vars.log }}"), ok("a")
    ),
    "variables persist": Case(
        stack(
            loop("{{ vars.n < 2.0 }}", onSuccess={"assign": TICK}),
            target={**MORE, "onSuccess": {"assign": {"log": "{{ vars.log + 'x' }}"}}},
            then="{{ [step.input, vars.n, vars.log] }}",
        ),
        ok([3, 3, "xxx"]),
        0,
    ),
    "the continuation, the value, the assignment": Case(
        stack(loop("{{ vars.n < 1.0 }}", onSuccess={"value": "{{ vars.n }}", "assign": TICK})), ok(1), 0
    ),
    "middleware.input is the first one": Case(
        stack(loop(THRICE, onSuccess={"value": "{{ middleware.input + middleware.result.value }}"}), target=mock()),
        ok(4 * 2),
        2,
    ),
    "a failure ends it": Case(
        stack(
            loop(THRICE, onFailure={"code": "Looped"}),
            target=mock(failure="{{ call.input == 2.0 ? {'code': 'X'} : null }}", value="{{ call.input + 1.0 }}"),
            then="{{ [failure.code, failure.previous.code] }}",
        ),
        ok(["Looped", "X"]),
        0,
    ),
    "a continuation that is no boolean": Case(uncaught(loop("{{ 1 }}")), bad(FAULT, previous=None)),
    "a continuation that faults": Case(uncaught(loop(UNKNOWN)), bad(FAULT, previous=None)),
    "a while loop": Case(
        stack(
            loop("{{ middleware.result.value < 3.0 }}", onEntry={"when": "{{ middleware.input < 3.0 }}"}), target=MORE
        ),
        ok(7),
        7,
    ),
    "entries inside are established anew, those outside are not": Case(
        stack(logging("A"), loop(THRICE), logging("B"), target=MORE, then="{{ vars.log }}"),
        ok("Ae" + "BeBsBa" * 3 + "AsAa"),
        0,
    ),
    "its own cleanup once": Case(
        stack(loop(THRICE, onAlways=logs("a")), target=MORE, then="{{ vars.log }}"), ok("a"), 0
    ),
    "a retry inside: each run anew": Case(
        stack(
            loop(THRICE, onSuccess={"assign": {"n": 0}}),
            retry(
                2,
                onFailure={"assign": TICK},
                onSuccess={"assign": {"log": "{{ vars.log + string(middleware.metadata.attempt) }}"}},
            ),
            target=fails_until(1.0),
            then="{{ vars.log }}",
        ),
        ok("222"),
    ),
    "a retry outside: the loop begins again, from where the variables were": Case(
        stack(
            retry(2, onFailure={"assign": {"log": "{{ vars.log + 'again at ' + string(vars.n) + ' ' }}"}}),
            loop(THRICE, onSuccess={"assign": TICK}),
            target=mock(
                failure="{{ vars.n == 2.0 && vars.log == '' ? {'code': 'X'} : null }}", value="{{ call.input + 1.0 }}"
            ),
            then="{{ [step.input, vars.n, vars.log] }}",
        ),
        ok([3, 3, "again at 2 "]),
        0,
    ),
    "a timeout outside: all runs together": Case(
        stack(
            timeout("PT5S"),
            loop("{{ true }}"),
            target={**MORE, "with": {"delay": "PT2S"}, "onSuccess": {"assign": TICK}},
            then="{{ vars.n }}",
        ),
        ok(2),
        0,
    ),
    "a timeout inside: each run": Case(
        stack(loop(THRICE), timeout("PT5S"), target={**MORE, "with": {"delay": "PT4S"}}), ok(3), 0
    ),
    "one loop inside another": Case(
        stack(loop("{{ middleware.metadata.iteration < 2.0 }}"), loop(THRICE), target=MORE), ok(6), 0
    ),
    "around a graph: the value is the graph's next input, not the frame's": Case(
        around(
            loop(THRICE),
            steps={
                "p": {"action": "Pass", "output": "{{ [step.input[0] + 1.0, frame.input[0]] }}", "next": "r"},
                "r": returned(),
            },
        ),
        ok([3, 0]),
        [0],
    ),
    "around a graph: a failure that was handled is over in the next run": Case(
        around(
            loop("{{ middleware.metadata.iteration < 2.0 }}", onSuccess={"assign": TICK}),
            steps={
                "s": call(mock(failure={"code": "{{ 'X' + string(vars.n) }}"}), catch=[caught("h")]),
                "h": returned("{{ failure }}"),
                "done": returned(),
            },
        ),
        ok({"type": "error", "code": "X1"}),
    ),
    "pages": Case(
        stack(
            loop(
                "{{ middleware.result.value.next != null }}",
                onSuccess={"assign": {"log": "{{ vars.log + middleware.result.value.items }}"}},
            ),
            target=mock(
                value="{{ call.input.next < 3.0"
                " ? {'items': string(call.input.next), 'next': call.input.next + 1.0} : {'items': '.', 'next': null} }}"
            ),
            output="{{ vars.log }}",
        ),
        ok("012."),
        {"next": 0},
    ),
    "polling, bounded": Case(
        flow(
            {
                "poll": call(
                    {
                        "flow": subflow(
                            {
                                "wait": {"action": "Sleep", "for": "PT5S", "next": "check"},
                                "check": call(
                                    mock(value={"status": "running"}),
                                    assign={"jobDone": "{{ step.result.value.status != 'running' }}"},
                                ),
                                "done": returned(),
                            },
                            middleware=[timeout("PT2M"), loop("{{ !vars.jobDone }}")],
                            parameters={
                                "type": "object",
                                "properties": {
                                    "jobId": {"type": "string"},
                                    "jobDone": {"type": "boolean", "default": False},
                                },
                                "required": ["jobId"],
                            },
                        ),
                        "with": {"jobId": "{{ call.input.jobId }}"},
                    },
                    catch=[caught("late", EXCEEDED)],
                ),
                "done": returned(),
                "late": returned("{{ [step.input.jobId, failure.type] }}"),
            }
        ),
        ok(["j", "timeout"]),
        {"jobId": "j"},
    ),
}


@pytest.mark.parametrize("name", TIMEOUTS)
def test_timeouts(name: str) -> None:
    play(TIMEOUTS[name])


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    play(LOOPS[name])
