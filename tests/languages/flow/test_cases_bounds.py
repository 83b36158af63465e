"""Tables of flows and their Results: Timeout and Loop, alone and with others."""

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
    shaper,
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
    "a duration of zero": Case(uncaught(timeout("PT0S"), target=SLOW), LATE),
    "a negative duration": Case(uncaught(timeout("-PT5S"), target=SLOW), LATE),
    "gated off": Case(
        stack(
            entry(TIMEOUT, onEntry={"when": "{{ false }}", "with": {"duration": "PT1S"}}),
            target=mock(delay="PT9S", value=1),
        ),
        ok(1),
    ),
    "a text that is not a duration": Case(uncaught(timeout("5s"), target=mock()), bad(INVALID)),
    "a duration that is a number": Case(uncaught(timeout("{{ 5 }}"), target=mock()), bad(INVALID)),
    "its own onFailure does not see its failure": Case(
        uncaught(timeout("PT5S", onFailure={"code": "Own"}), target=SLOW), {**LATE, "previous": None}
    ),
    "an outer entry shapes the failure": Case(
        uncaught(shaper(onFailure={"code": "Slow"}), timeout("PT5S"), target=SLOW),
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
            shaper(
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
    "a cleanup that fails leads the chain": Case(
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
    "around a retry: bounds all attempts together": Case(
        stack(
            timeout("PT5S"),
            retry(9, onFailure={"assign": TICK}),
            target=mock(delay="PT2S", failure={"code": "X"}),
            then="{{ [failure.code, vars.n] }}",
        ),
        ok([EXCEEDED, 2]),
    ),
    "inside a retry: bounds each attempt": Case(
        stack(
            retry(3, EXCEEDED, onFailure={"assign": TICK}),
            timeout("PT5S"),
            target=mock(delay="{{ vars.n < 2.0 ? 'PT1H' : 'PT1S' }}", value="{{ vars.n }}"),
        ),
        ok(2),
    ),
    "around a graph that sleeps": Case(
        around(timeout("PT5S"), steps={"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}),
        LATE,
    ),
    "assignments made before it expires remain": Case(
        stack(timeout("PT5S"), shaper({"assign": {"log": "kept"}}), target=SLOW, then="{{ vars.log }}"), ok("kept")
    ),
    "in a handler: chains the failure that is handled": Case(
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
    "the shaped value is the next run's input": Case(
        stack(loop(THRICE, onSuccess={"value": "{{ middleware.result.value * 10.0 }}"}), target=MORE), ok(1110), 0
    ),
    "the first run's input is what the entry passes down": Case(
        stack(loop(THRICE, onEntry={"output": 100}), target=MORE), ok(103), 0
    ),
    "no run: the value is the entry's output": Case(
        stack(loop(THRICE, onEntry={"when": "{{ false }}", "output": "{{ middleware.input + 5.0 }}"}), target=MORE),
        ok(5),
        0,
    ),
    "no run: onSuccess is skipped": Case(
        stack(loop(THRICE, onEntry={"when": "{{ false }}"}, onSuccess={"value": "never"}), target=failing("X")),
        ok("in"),
        "in",
    ),
    "no run: the cleanup runs": Case(
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
    "the order is continuation, value, assignment": Case(
        stack(loop("{{ vars.n < 1.0 }}", onSuccess={"value": "{{ vars.n }}", "assign": TICK})), ok(1), 0
    ),
    "middleware.input is the first run's input": Case(
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
    "a continuation that is not a boolean": Case(uncaught(loop("{{ 1 }}")), bad(FAULT, previous=None)),
    "a continuation that faults": Case(uncaught(loop(UNKNOWN)), bad(FAULT, previous=None)),
    "a while loop": Case(
        stack(
            loop("{{ middleware.result.value < 3.0 }}", onEntry={"when": "{{ middleware.input < 3.0 }}"}), target=MORE
        ),
        ok(7),
        7,
    ),
    "inner entries run every time, outer entries once": Case(
        stack(logging("A"), loop(THRICE), logging("B"), target=MORE, then="{{ vars.log }}"),
        ok("Ae" + "BeBsBa" * 3 + "AsAa"),
        0,
    ),
    "its own cleanup runs once": Case(
        stack(loop(THRICE, onAlways=logs("a")), target=MORE, then="{{ vars.log }}"), ok("a"), 0
    ),
    "a retry inside: counts for each run": Case(
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
    "a retry outside: the loop starts again with restored variables": Case(
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
    "a timeout outside: bounds all runs together": Case(
        stack(
            timeout("PT5S"),
            loop("{{ true }}"),
            target={**MORE, "with": {"delay": "PT2S"}, "onSuccess": {"assign": TICK}},
            then="{{ vars.n }}",
        ),
        ok(2),
        0,
    ),
    "a timeout inside: bounds each run": Case(
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
    "around a graph: the next run does not see a handled failure": Case(
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
    "pagination": Case(
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
    "polling within a timeout": Case(
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
