"""Steps and calls of flows: routing, shaping, catching, fan-out, subflows, parameters; and how far it scales.

Specification: *Step actions*, *Steps and step mechanics*, *The Call interface and Result*, *The Flow object*.
"""

from typing import Any

import pytest

from callboard.bus.events import payload_of
from callboard.languages.language import Instant
from callboard.runtime.interpreter.waits import Waits
from tests.support.conformance import CORPUS, WITH_DATA
from tests.support.flows import (
    MOCK,
    RETRY,
    Performance,
    call,
    caught,
    cleanup,
    entry,
    failing,
    flow,
    mock,
    perform,
    returned,
    subflow,
    timeout,
)

SIGNAL = "mwl:provider.call/callboard/signal/v1"

INVALID = "System.ParameterValidationFailed"
FAULT = "System.ExpressionEvaluationError"
UNMET = "System.GatherCompletionUnmet"


# -- Sleep -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment", [{"for": "PT1H"}, {"until": "2026-11-20T12:00:00Z"}, {"for": "{{ 'PT1H' }}"}], ids=str
)
def test_a_sleeping_run_is_parked_and_wakes_at_its_time(moment: dict[str, str]) -> None:
    done = perform(
        flow({"s": {"action": "Sleep", **moment, "next": "r"}, "r": returned("{{ step.metadata.enteredAt }}")})
    )
    assert done.value == "2026-11-20T12:00:00Z"
    assert "run.parked" in {event.type for event in done.events}


@pytest.mark.parametrize("moment", [{"for": "-PT5S"}, {"for": "PT0S"}, {"until": "1999-01-01T00:00:00Z"}], ids=str)
def test_a_moment_that_has_passed_completes_a_sleep_at_once(moment: dict[str, str]) -> None:
    done = perform(flow({"s": {"action": "Sleep", **moment, "next": "r"}, "r": returned()}), "through")
    assert done.value == "through"
    assert done.keys("timer.set") == []


@pytest.mark.parametrize(
    "moment", [{"for": "tomorrow"}, {"until": "noon"}, {"for": "{{ 5.0 }}"}, {"until": "P1D"}], ids=str
)
def test_what_is_no_moment_fails_validation(moment: dict[str, str]) -> None:
    result = perform(flow({"s": {"action": "Sleep", **moment, "next": "r"}, "r": returned()})).result
    assert result["code"] == INVALID
    assert set(result["details"]) >= {"schemaPath", "value"}


# -- catch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "found"),
    [
        ({"codes": ["A.B.C"]}, True),
        ({"codes": ["A.B"]}, False),
        ({"codes": ["A.B.*"]}, True),
        ({"codes": ["A.*"]}, True),
        ({"codes": ["A.B.C.*"]}, False),
        ({"codes": ["A.B.C*"]}, False),
        ({"codes": ["a.b.c"]}, False),
        ({"codes": ["*"]}, True),
        ({"codes": ["X", "A.*"]}, True),
        ({"types": ["Odd"]}, True),
        ({"types": ["error"]}, False),
        ({"retryable": True}, True),
        ({"retryable": False}, False),
        ({"codes": ["A.*"], "types": ["error"]}, False),
        ({"codes": ["A.*"], "types": ["Odd"], "retryable": True}, True),
    ],
    ids=str,
)
def test_a_matcher_matches_when_all_its_members_do(match: dict[str, Any], found: bool) -> None:
    steps = {
        "w": call(failing("A.B.C", type="Odd", retryable=True), catch=[{"match": match, "next": "h"}]),
        "done": returned(),
        "h": returned("handled"),
    }
    assert (perform(flow(steps)).result["type"] == "success") is found


def test_a_clause_passes_the_received_value_on_not_the_shaped_one() -> None:
    steps = {
        "w": call(failing("X"), input="shaped", catch=[caught("h")]),
        "done": returned(),
        "h": returned(),
    }
    assert perform(flow(steps), "received").value == "received"


@pytest.mark.parametrize("field", ["input", "output", "assign"])
def test_a_fault_in_a_steps_own_fields_is_its_failure_and_can_be_caught(field: str) -> None:
    faulty: Any = {"x": "{{ nothing.there }}"}
    step = {**call(mock(), catch=[caught("h", FAULT)]), field: faulty}
    steps = {"w": step, "done": returned(), "h": returned("{{ failure.code }}")}
    assert perform(flow(steps)).value == FAULT


def test_a_failed_step_neither_shapes_nor_captures() -> None:
    steps = {
        "w": call(failing("X"), output="{{ nothing.there }}", assign={"x": 1}, catch=[caught("h")]),
        "done": returned(),
        "h": returned("{{ has(vars.x) }}"),
    }
    assert perform(flow(steps)).value is False


def test_a_step_that_carries_no_catch_lets_its_failure_out_of_the_frame() -> None:
    inner = subflow({"p": {"action": "Pass", "output": "{{ nothing.there }}", "next": "r"}, "r": returned()})
    steps = {"w": call({"flow": inner}, catch=[caught("h", FAULT)]), "done": returned(), "h": returned("caught")}
    assert perform(flow(steps)).value == "caught"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_exactly_one_arm_runs() -> None:
    for target, taken in ((mock(value=1), "ok"), (failing("X"), "not")):
        arms = {"onSuccess": {"assign": {"arm": "ok"}}, "onFailure": {"assign": {"arm": "not"}}}
        steps = {"w": call({**target, **arms}, catch=[caught("done")]), "done": returned("{{ vars.arm }}")}
        assert perform(flow(steps)).value == taken


def test_a_fault_in_the_failure_arm_chains_the_targets_failure() -> None:
    target = {**failing("X"), "onFailure": {"assign": {"x": "{{ nothing.there }}"}}}
    assert perform(flow({"w": call(target), "done": returned()})).chain == [FAULT, "X"]


def test_with_may_be_one_expression_and_must_be_an_object() -> None:
    for written, code in (("{{ step.input }}", None), ("{{ 'text' }}", INVALID), ("{{ {'bogus': true} }}", INVALID)):
        steps = {"w": call({"provider": MOCK, "with": written}), "done": returned()}
        result = perform(flow(steps), {"value": 7}).result
        assert result.get("code") == code


def test_a_subflow_is_a_target_like_any_other() -> None:
    inner = subflow({"r": {"action": "Raise", "result": {"code": "Inner.Code"}}})
    steps = {
        "w": call({"flow": inner}, catch=[caught("h", "Inner.*")]),
        "done": returned(),
        "h": returned("{{ failure }}"),
    }
    assert perform(flow(steps)).value == {"type": "error", "code": "Inner.Code"}


def test_names_of_flows_are_resolved_where_they_are_written() -> None:
    named = subflow({"r": returned("outer")})
    caller = subflow({"w": call({"flow": "N"}), "done": returned()}, flows={"N": subflow({"r": returned("inner")})})
    uses_outer = subflow({"w": call({"flow": "N"}), "done": returned()})
    steps = {
        "a": call({"flow": "Caller"}, next="b"),
        "b": call({"flow": "Uses"}, next="r", output="{{ [step.input, step.result.value] }}"),
        "r": returned(),
    }
    assert perform(flow(steps, flows={"N": named, "Caller": caller, "Uses": uses_outer})).value == ["inner", "outer"]


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "arguments", "vars"),
    [
        ({"type": "object", "properties": {"a": {"type": "number", "default": 1}}}, {}, {"a": 1}),
        ({"type": "object", "properties": {"a": {"default": 1}}}, {"a": None}, {"a": None}),
        ({"type": "object", "additionalProperties": True}, {"b": 2}, {"b": 2}),
        ({"type": "object"}, {"b": 2}, None),
        (None, {"b": 2}, None),
        (None, {}, {}),
        ({"type": "object", "properties": {"a": {"type": "string", "format": "duration"}}}, {"a": "soon"}, None),
        ({"type": "object", "properties": {"a": {"type": "string", "format": "date-time"}}}, {"a": "2026-13-01"}, None),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 5.0}, {"a": 5}),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": True}, None),
    ],
    ids=str,
)
def test_arguments_are_validated_closed_and_seed_the_variables(
    schema: dict[str, Any] | None, arguments: dict[str, Any], vars: dict[str, Any] | None
) -> None:
    definition = flow({"r": returned("{{ vars }}")}, **({} if schema is None else {"parameters": schema}))
    as_root = perform(definition, arguments=arguments).result
    inner = {name: value for name, value in definition.items() if name != "$schema"}
    as_subflow = perform(flow({"w": call({"flow": inner, "with": arguments}), "done": returned()})).result
    for result in (as_root, as_subflow):
        if vars is None:
            assert result["code"] == INVALID
            assert set(result["details"]) >= {"schemaPath", "value"}
        else:
            assert result["value"] == vars


# -- Gather ------------------------------------------------------------------------------------------------------------


def gather(over: Any, target: dict[str, Any], **fields: Any) -> Performance:
    fan = {"action": "Gather", "over": over, "call": target, "next": "done", "catch": [caught("failed")], **fields}
    steps = {
        "fan": fan,
        "done": returned("{{ {'value': step.input, 'vars': vars} }}"),
        "failed": returned("{{ {'failure': failure, 'vars': vars} }}"),
    }
    listing = {"type": "object", "properties": {"seen": {"type": "array", "default": []}}}
    return perform(flow(steps, parameters=listing))


def test_arms_run_in_dispatch_order_whatever_order_the_work_ends_in_even_one_at_a_time() -> None:
    target = {
        **mock(delay="{{ 'PT' + string(int(5.0 - call.index)) + 'S' }}", value="{{ vars.seen }}"),
        "onSuccess": {"value": "{{ call.index }}", "assign": {"seen": "{{ vars.seen + [call.index] }}"}},
    }
    for cap in (None, 1, 2):
        done = gather([1, 2, 3], target, concurrency=cap)
        assert done.value == {"value": [0, 1, 2], "vars": {"seen": [0, 1, 2]}}


def test_dispatches_read_the_variables_as_they_were_when_the_action_began() -> None:
    target = {
        **mock(value="{{ vars.seen }}"),
        "onSuccess": {"assign": {"seen": "{{ vars.seen + [call.result.value] }}"}},
    }
    assert gather([1, 2], target, concurrency=1).value["value"] == [[], []]


def test_no_more_dispatches_are_active_than_the_cap_allows() -> None:
    done = gather([1, 2, 3, 4, 5], mock(delay="PT1S"), concurrency=2)
    active = most = 0
    for event in done.events:
        active += (event.type == "timer.set") - (event.type == "effect.result")
        most = max(most, active)
    assert most == 2


def test_step_results_hold_every_dispatch_in_its_place() -> None:
    target = mock(failure="{{ call.index == 1 ? {'code': 'X'} : null }}", value="{{ call.input }}")
    done = gather(["a", "b", "c"], target, completion={"successes": 1}, output="{{ step.results.map(r, r.type) }}")
    assert done.value["value"] == ["success", "error", "success"]


def test_the_evidence_of_an_unmet_policy() -> None:
    done = gather(["a", "b"], failing("X"), completion={"successes": "{{ step.metadata.dispatchCount }}"})
    failure = done.value["failure"]
    assert failure["code"] == UNMET
    assert failure["details"]["failureCount"] == 2
    assert [one["index"] for one in failure["details"]["failures"]] == [0, 1]
    assert "previous" not in failure


@pytest.mark.parametrize(
    ("over", "completion", "code"),
    [
        ("{{ 'text' }}", None, INVALID),
        ("{{ nothing.there }}", None, FAULT),
        ([1, 2], {"successes": "{{ 1.5 }}"}, INVALID),
        ([1, 2], {"successes": "{{ true }}"}, INVALID),
        ([1, 2], {"successes": "{{ nothing.there }}"}, FAULT),
    ],
    ids=str,
)
def test_a_gather_that_fails_from_its_own_machinery_can_be_caught(over: Any, completion: Any, code: str) -> None:
    done = gather(over, mock(), **({"completion": completion} if completion else {}))
    assert done.value["failure"]["code"] == code


def test_step_results_are_complete_in_catch_even_if_the_policy_faults() -> None:
    clause = caught("failed", assign={"seen": "{{ step.results.map(r, r.code) }}"})
    done = gather([1, 2], mock(), completion={"successes": "{{ 1.5 }}"}, catch=[clause])
    assert done.value["vars"]["seen"] == ["System.GatherDispatchSkipped"] * 2


def test_a_dispatchs_failure_does_not_set_the_failure_context() -> None:
    done = gather([1], failing("X"), completion={"successes": 0}, output="{{ failure == null }}")
    assert done.value["value"] is True


def test_scatter_gives_every_call_the_value_that_the_step_received() -> None:
    calls = [{**mock(), "input": "{{ [call.input, call.index] }}"}, mock()]
    fan = {"action": "Gather", "calls": calls, "next": "done"}
    assert perform(flow({"fan": fan, "done": returned()}), "in").value == [["in", 0], "in"]


# -- signals ----------------------------------------------------------------------------------------------------------


def test_a_signal_goes_to_whoever_it_is_meant_for() -> None:
    def waiting(who: str) -> dict[str, Any]:
        return {"provider": SIGNAL, "with": {"name": "paid", "match": {"order": who}}}

    fan = {"action": "Gather", "calls": [waiting("a"), waiting("b")], "next": "done"}
    told = [("signal", {"name": "paid", "data": {"order": who, "n": n}}) for n, who in enumerate(("b", "x", "a"))]
    done = perform(flow({"fan": fan, "done": returned()}), commands=told)
    assert done.value == [{"order": "a", "n": 2}, {"order": "b", "n": 0}]


def test_a_signal_that_came_before_is_kept_for_whoever_it_is_meant_for() -> None:
    first = {"provider": SIGNAL, "with": {"name": "go"}}
    late = {"provider": SIGNAL, "with": {"name": "paid", "match": {"order": "a"}}}
    steps = {"w": call(first, next="l"), "l": call(late), "done": returned()}
    told = [("signal", {"name": "paid", "data": {"order": who}}) for who in ("b", "a")]
    done = perform(flow(steps), commands=[*told, ("signal", {"name": "go"})])
    assert done.value == {"order": "a"}


# -- what the log says -------------------------------------------------------------------------------------------------


def test_frames_and_steps_have_paths_and_routes_name_their_edge() -> None:
    inner = subflow({"in": call(mock()), "done": returned()})
    steps = {
        "w": call({"flow": inner}, next="fan", middleware=[cleanup(mock())]),
        "fan": {"action": "Gather", "over": [1], "call": {"flow": inner}, "next": "m"},
        "m": {"action": "Match", "cases": [{"when": "{{ true }}", "next": "f"}], "default": {"next": "done"}},
        "f": call(failing("X"), catch=[caught("done")]),
        "done": returned(),
    }
    done = perform(flow(steps))
    assert done.keys("node.enter") == [
        "main",
        "main/w",
        "main/w:call",
        "main/w:call/in",
        "main/w:call/done",
        "main/w:mw0.onAlways",
        "main/fan",
        "main/fan[0]",
        "main/fan[0]/in",
        "main/fan[0]/done",
        "main/m",
        "main/f",
        "main/done",
    ]
    routed: list[Any] = [payload_of(event) for event in done.events if event.type == "route"]
    edges = [(route.source, route.target, route.edge) for route in routed]
    assert ("m", "f", "case.0") in edges
    assert ("f", "done", "catch.0") in edges
    assert ("w", "fan", "next") in edges


# -- breakpoints and pauses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["b", "main/b"])
def test_a_breakpoint_holds_a_run_before_its_step(where: str) -> None:
    steps = {"a": {"action": "Pass", "next": "b"}, "b": {"action": "Pass", "next": "r"}, "r": returned("over")}
    done = perform(flow(steps), breakpoints=[where], commands=[("resume", {})])
    assert done.value == "over"
    kinds = [event.type for event in done.events]
    held = kinds.index("run.paused")
    assert [event.path for event in done.events[:held] if event.type == "node.enter"] == ["main", "main/a"]
    assert "run.resumed" in kinds[held:]


def test_a_pause_holds_a_flow_between_its_steps() -> None:
    steps = {
        "a": {"action": "Sleep", "for": "PT1S", "next": "b"},
        "b": {"action": "Pass", "next": "r"},
        "r": returned(1),
    }
    done = perform(flow(steps), commands=[("pause", {}), ("resume", {})])
    assert done.value == 1


# -- scale -------------------------------------------------------------------------------------------------------------


def test_frames_nest_fifty_deep() -> None:
    inner = subflow({"r": returned("bottom")}, middleware=[cleanup(mock())])
    for _ in range(50):
        inner = subflow({"w": call({"flow": inner}), "done": returned()}, middleware=[cleanup(mock())])
    done = perform(flow({"w": call({"flow": inner}), "done": returned()}))
    assert done.value == "bottom"


def test_a_cancellation_unwinds_fifty_frames() -> None:
    inner = subflow({"s": {"action": "Sleep", "for": "PT1H", "next": "r"}, "r": returned()})
    for _ in range(50):
        inner = subflow({"w": call({"flow": inner}), "done": returned()}, middleware=[cleanup(mock())])
    done = perform(flow({"w": call({"flow": inner}), "done": returned()}), commands=[("cancel", {})])
    assert done.chain == ["System.Cancelled"]
    assert len(done.keys("effect.call")) == 50


def test_a_fan_out_over_thousands_keeps_to_its_cap_and_replays() -> None:
    done = perform(
        flow(
            {
                "fan": {
                    "action": "Gather",
                    "over": "{{ step.input }}",
                    "call": mock(),
                    "concurrency": 100,
                    "next": "r",
                },
                "r": returned(),
            }
        ),
        list(range(2_000)),
    )
    assert done.value == list(range(2_000))
    assert len(done.events) < 2 * 2_000 + 20


@WITH_DATA
def test_the_corpus_is_where_this_project_expects_it() -> None:
    assert len(list(CORPUS.glob("*/case.json"))) >= 60


def test_the_next_deadline_is_the_earliest_of_all_without_looking_at_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers, gaps and bounds come and go, in a fan-out of many; a look at all for each would make it quadratic."""
    found = Waits.next_deadline
    looked: list[bool] = []

    def checked(waits: Waits) -> tuple[Instant, str] | None:
        still = [one for one in waits.deadlines() if waits.is_open(one[1])]
        assert found(waits) == (still[0] if still else None)
        looked.append(bool(still))
        return found(waits)

    monkeypatch.setattr(Waits, "next_deadline", checked)
    gap = {"match": {"codes": ["*"]}, "attempts": 2, "backoff": {"initial": "PT7S"}}
    patient = entry(RETRY, onEntry={"with": {"policies": [gap]}})
    work = mock(
        delay="{{ 'PT' + string(int(frame.input * 7.0) % 20) + 'S' }}",
        failure="{{ frame.input > 9.0 ? {'code': 'X'} : null }}",
    )
    each = subflow({"w": call(work, middleware=[timeout("PT30S"), patient, timeout("PT12S")]), "done": returned(1)})
    fan = {"action": "Gather", "over": "{{ step.input }}", "call": {"flow": each}, "next": "done"}
    completion = {"successes": "{{ 1 }}", "wait": True}
    perform(flow({"fan": {**fan, "completion": completion}, "done": returned()}), list(range(20)))
    assert looked.count(True) > 20


def test_a_live_run_lists_its_deadlines_never(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(waits: Waits) -> list[tuple[Instant, str]]:
        raise AssertionError("all deadlines are looked at")

    monkeypatch.setattr(Waits, "deadlines", listed)
    nap = {"action": "Sleep", "for": "PT1H", "next": "done"}
    assert perform(flow({"nap": nap, "done": returned(1)})).value == 1
