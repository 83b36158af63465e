"""Steps and calls of flows: routing, catching, fan-out, subflows, parameters, signals, breakpoints, large flows.

Specification: *Step actions*, *Steps and step mechanics*, *The Call interface and Result*, *The Flow object*.
"""

from typing import Any

import pytest

from callboard.bus.events import payload_of
from callboard.languages.language import Instant
from callboard.runtime.interpreter.waits import Waits
from tests.support.conformance import CORPUS, WITH_DATA
from tests.support.flow_cases import FAULT, INVALID, one_step
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
    "moment",
    [
        {"for": "tomorrow"},
        {"until": "noon"},
        {"until": "P1D"},
        {"for": "2026-11-20T14:00:00Z"},
        {"for": "{{ 5.0 }}"},
        {"for": "{{ null }}"},
        {"for": "{{ string(duration('90s')) }}"},
    ],
    ids=str,
)
def test_a_sleep_for_an_invalid_moment_fails_validation(moment: dict[str, str]) -> None:
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


@pytest.mark.parametrize("field", ["input", "output", "assign"])
def test_a_fault_in_a_steps_own_fields_is_its_failure_and_can_be_caught(field: str) -> None:
    faulty: Any = {"x": "{{ nothing.there }}"}
    step = {**call(mock(), catch=[caught("h", FAULT)]), field: faulty}
    steps = {"w": step, "done": returned(), "h": returned("{{ failure.code }}")}
    assert perform(flow(steps)).value == FAULT


def test_a_failed_step_neither_shapes_nor_assigns() -> None:
    steps = {
        "w": call(failing("X"), output="{{ nothing.there }}", assign={"x": 1}, catch=[caught("h")]),
        "done": returned(),
        "h": returned("{{ has(vars.x) }}"),
    }
    assert perform(flow(steps)).value is False


def test_a_failure_of_a_step_without_catch_leaves_the_frame() -> None:
    inner = subflow({"p": {"action": "Pass", "output": "{{ nothing.there }}", "next": "r"}, "r": returned()})
    steps = {"w": call({"flow": inner}, catch=[caught("h", FAULT)]), "done": returned(), "h": returned("caught")}
    assert perform(flow(steps)).value == "caught"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_with_may_be_one_expression_and_must_be_an_object() -> None:
    for written, code in (("{{ step.input }}", None), ("{{ 'text' }}", INVALID), ("{{ {'bogus': true} }}", INVALID)):
        steps = {"w": call({"provider": MOCK, "with": written}), "done": returned()}
        result = perform(flow(steps), {"value": 7}).result
        assert result.get("code") == code


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
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": None}, None),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, {}, None),
        ({"type": "object", "properties": {"a": {"default": 1}}, "required": ["a"]}, {}, None),
        ({"type": "object", "properties": {"a": {"properties": {"b": {"default": 1}}}}}, {"a": {}}, {"a": {}}),
        ({"type": "object", "properties": {"a": {"additionalProperties": False}}}, {"a": {"c": 1}}, None),
    ],
    ids=str,
)
def test_arguments_are_validated_closed_and_seed_the_variables(
    schema: dict[str, Any] | None, arguments: dict[str, Any], vars: dict[str, Any] | None
) -> None:
    definition = flow({"r": returned("{{ vars }}")}, **({} if schema is None else {"parameters": schema}))
    as_root = perform(definition, arguments=arguments).result
    inner = {name: value for name, value in definition.items() if name != "$schema"}
    as_subflow = perform(one_step(call({"flow": inner, "with": arguments}))).result
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


def test_arms_run_in_dispatch_order_whatever_order_the_calls_end_in() -> None:
    target = {
        **mock(delay="{{ 'PT' + string(int(5.0 - call.index)) + 'S' }}"),
        "onSuccess": {"value": "{{ vars.seen }}", "assign": {"seen": "{{ vars.seen + [call.index] }}"}},
    }
    for cap in (None, 1, 2):
        done = gather([1, 2, 3], target, concurrency=cap)
        assert done.value == {"value": [[], [0], [0, 1]], "vars": {"seen": [0, 1, 2]}}


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
def test_the_failure_of_an_invalid_gather_can_be_caught(over: Any, completion: Any, code: str) -> None:
    done = gather(over, mock(), **({"completion": completion} if completion else {}))
    assert done.value["failure"]["code"] == code


def test_step_results_are_complete_in_catch_even_if_the_policy_faults() -> None:
    clause = caught("failed", assign={"seen": "{{ step.results.map(r, r.code) }}"})
    done = gather([1, 2], mock(), completion={"successes": "{{ 1.5 }}"}, catch=[clause])
    assert done.value["vars"]["seen"] == ["System.GatherDispatchSkipped"] * 2


def test_a_dispatchs_failure_does_not_set_the_failure_context() -> None:
    done = gather([1], failing("X"), completion={"successes": 0}, output="{{ failure == null }}")
    assert done.value["value"] is True


# -- signals -----------------------------------------------------------------------------------------------------------


def await_payment(order: str) -> dict[str, Any]:
    return {"provider": SIGNAL, "with": {"name": "paid", "match": {"order": order}}}


def test_a_signal_goes_to_the_call_that_it_matches() -> None:
    fan = {"action": "Gather", "calls": [await_payment("a"), await_payment("b")], "next": "done"}
    signals = [("signal", {"name": "paid", "data": {"order": order, "n": n}}) for n, order in enumerate("bxa")]
    done = perform(one_step(fan), commands=signals)
    assert done.value == [{"order": "a", "n": 2}, {"order": "b", "n": 0}]


def test_an_early_signal_is_kept_for_the_call_that_it_matches() -> None:
    first = {"provider": SIGNAL, "with": {"name": "go"}}
    steps = {"w": call(first, next="l"), "l": call(await_payment("a")), "done": returned()}
    signals = [("signal", {"name": "paid", "data": {"order": order}}) for order in "ba"]
    done = perform(flow(steps), commands=[*signals, ("signal", {"name": "go"})])
    assert done.value == {"order": "a"}


# -- paths and routes in the log ---------------------------------------------------------------------------------------


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


def nest(inner: dict[str, Any]) -> dict[str, Any]:
    """A flow that calls another, fifty levels deep; each level has a clean-up."""
    for _ in range(50):
        inner = subflow({"w": call({"flow": inner}), "done": returned()}, middleware=[cleanup(mock())])
    return one_step(call({"flow": inner}))


def test_frames_nest_fifty_deep() -> None:
    assert perform(nest(subflow({"r": returned("bottom")}))).value == "bottom"


def test_a_cancellation_unwinds_fifty_frames() -> None:
    nap = subflow({"s": {"action": "Sleep", "for": "PT1H", "next": "r"}, "r": returned()})
    done = perform(nest(nap), commands=[("cancel", {})])
    assert done.chain == ["System.Cancelled"]
    assert len(done.keys("effect.call")) == 50


def test_a_fan_out_over_thousands_keeps_to_its_cap_and_replays() -> None:
    fan = {"action": "Gather", "over": "{{ step.input }}", "call": mock(), "concurrency": 100, "next": "done"}
    done = perform(one_step(fan), list(range(2_000)))
    assert done.value == list(range(2_000))
    assert len(done.events) < 2 * 2_000 + 20


@WITH_DATA
def test_the_corpus_is_found() -> None:
    assert len(list(CORPUS.glob("*/case.json"))) >= 60


def test_the_next_deadline_is_the_earliest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fan-out has many timers, gaps and bounds; looking at all of them for each would take quadratic time."""
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
    perform(one_step({**fan, "completion": completion}), list(range(20)))
    assert looked.count(True) > 20


def test_a_live_run_never_lists_all_its_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(waits: Waits) -> list[tuple[Instant, str]]:
        raise AssertionError("all deadlines are looked at")

    monkeypatch.setattr(Waits, "deadlines", listed)
    nap = {"action": "Sleep", "for": "PT1H", "next": "done"}
    assert perform(one_step(nap, then=1)).value == 1
