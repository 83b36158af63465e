"""Bindings of expressions: where they are in scope, when they are set, how often fields are evaluated.

Specification: *Execution context*, *Expressions*, *Execution model* (Expression evaluation timing).
"""

from typing import Any

import pytest

from tests.support.flow_cases import one_step
from tests.support.flows import MOCK, RETRY, call, caught, entry, failing, flow, mock, perform, retry, returned, subflow

UNREADABLE = "System.ExpressionEvaluationError"


def evaluated(expression: Any, input: Any = None) -> Any:
    """The Result of a flow that does nothing but return an expression."""
    return perform(flow({"r": returned(expression)}), input).result


# -- execution, frame, step --------------------------------------------------------------------------------------------


def test_execution_is_the_same_in_every_frame_and_has_the_members_of_the_specification() -> None:
    inner = subflow({"r": returned("{{ execution }}")})
    steps = {"in": call({"flow": inner}), "done": returned("{{ [step.input, execution] }}")}
    there, here = perform(flow(steps)).value
    assert there == here
    assert set(here) == {"id", "metadata", "platform"}
    assert here["metadata"] == {"enteredAt": "2026-11-20T11:00:00Z"}
    assert here["platform"] == {}


def test_a_frame_shows_no_completion_members_while_it_runs() -> None:
    assert evaluated("{{ [has(frame.vars), has(frame.result), has(frame.metadata.exitedAt)] }}")["value"] == [False] * 3


def test_step_has_the_members_of_the_specification_and_its_own_id() -> None:
    steps = {
        "a": {"action": "Pass", "output": "{{ [step.id] }}", "next": "b"},
        "b": {"action": "Pass", "output": "{{ step.input + [step.id, step.name, step.action] }}", "next": "r"},
        "r": returned("{{ {'seen': step.input, 'members': step} }}"),
    }
    value = perform(flow(steps)).value
    first, second, name, action = value["seen"]
    assert first != second
    assert (name, action) == ("b", "Pass")
    assert set(value["members"]) == {"name", "id", "action", "input", "metadata"}


def test_a_step_that_runs_again_has_another_id() -> None:
    steps = {
        "a": {"action": "Pass", "assign": {"ids": "{{ vars.ids + [step.id] }}"}, "next": "m"},
        "m": {
            "action": "Match",
            "cases": [{"when": "{{ size(vars.ids) < 3 }}", "next": "a"}],
            "default": {"next": "r"},
        },
        "r": returned("{{ vars.ids }}"),
    }
    parameters = {"type": "object", "properties": {"ids": {"type": "array", "default": []}}}
    assert len(set(perform(flow(steps, parameters=parameters)).value)) == 3


def test_a_steps_exit_can_be_read_in_its_tail_and_not_before() -> None:
    took = "timestamp(step.metadata.exitedAt) - timestamp(step.metadata.enteredAt) == duration('2s')"
    steps = {
        "w": call(
            mock(delay="PT2S", value="{{ has(step.metadata.exitedAt) }}"),
            output=f"{{{{ [step.result.value, {took}] }}}}",
        ),
        "done": returned(),
    }
    assert perform(flow(steps)).value == [False, True]


def test_a_match_shares_its_steps_instants() -> None:
    steps = {
        "m": {
            "action": "Match",
            "input": {"n": "{{ step.input }}"},
            "cases": [],
            "default": {
                "output": "{{ [match.input.n, step.input, match.metadata.enteredAt == step.metadata.enteredAt] }}",
                "next": "r",
            },
        },
        "r": returned(),
    }
    assert perform(flow(steps), 4).value == [4, 4, True]


# -- call, provider, flow ----------------------------------------------------------------------------------------------


def test_a_calls_record_brackets_the_dispatch() -> None:
    target = {**mock(delay="PT2S"), "onSuccess": {"value": "{{ call.metadata }}"}}
    record = perform(one_step(call(target))).value
    assert set(record) == {"enteredAt", "dispatchedAt", "acceptedAt", "exitedAt"}
    assert record["enteredAt"] == record["dispatchedAt"] == "2026-11-20T11:00:00Z"
    assert record["acceptedAt"] == record["exitedAt"] == "2026-11-20T11:00:02Z"


def test_call_and_the_windows_are_out_of_scope_beyond_the_call_object() -> None:
    for root in ("call", "provider", "flow", "match", "middleware"):
        steps = {"w": call(mock(), output=f"{{{{ {root}.input }}}}"), "done": returned()}
        assert perform(flow(steps)).result["code"] == UNREADABLE, root


def test_the_windows_are_not_in_scope_in_a_calls_own_fields() -> None:
    for target in (
        {"provider": MOCK, "with": {"value": "{{ provider.input }}"}},
        {"provider": MOCK, "input": "{{ call.result }}"},
    ):
        assert perform(one_step(call(target))).result["code"] == UNREADABLE


def test_a_call_of_a_step_has_no_index() -> None:
    target = mock(value="{{ has(call.index) }}")
    assert perform(one_step(call(target))).value is False


def test_the_provider_window_shows_input_result_and_metadata() -> None:
    target = {**mock(value=1, metadata={"id": "x"}), "input": "in", "onSuccess": {"value": "{{ provider }}"}}
    window = perform(one_step(call(target))).value
    assert window == {"input": "in", "result": {"type": "success", "value": 1}, "metadata": {"id": "x"}}


def test_the_flow_window_is_the_completed_frame() -> None:
    inner = subflow({"a": {"action": "Pass", "assign": {"x": 1}, "next": "r"}, "r": returned("out")})
    target = {"flow": inner, "input": "in", "onSuccess": {"value": "{{ flow }}", "assign": {"x": "{{ flow.vars.x }}"}}}
    value = perform(one_step(call(target), then="{{ [step.input, vars.x] }}")).value
    window, captured = value
    assert captured == 1
    assert set(window) == {"input", "metadata", "vars", "result"}
    assert window["vars"] == {"x": 1}
    assert window["result"] == {"type": "success", "value": "out"}
    assert set(window["metadata"]) == {"enteredAt", "exitedAt"}


def test_the_failure_arm_reads_the_envelope_as_call_result_and_not_as_failure() -> None:
    target = {**failing("My.Code"), "onFailure": {"assign": {"seen": "{{ [call.result.code, failure == null] }}"}}}
    steps = {"w": call(target, catch=[caught("h")]), "done": returned(), "h": returned("{{ vars.seen }}")}
    assert perform(flow(steps)).value == ["My.Code", True]


# -- middleware --------------------------------------------------------------------------------------------------------


def test_step_is_in_scope_in_step_level_phases_and_not_in_flow_level_ones() -> None:
    stack = [retry(1, onSuccess={"assign": {"seen": "{{ step.name }}"}})]
    steps = {"w": call(mock(), middleware=stack), "done": returned("{{ vars.seen }}")}
    assert perform(flow(steps)).value == "w"
    assert perform(flow({"r": returned()}, middleware=stack)).result["code"] == UNREADABLE


def test_a_phase_cannot_read_the_steps_result() -> None:
    stack = [retry(1, onSuccess={"value": "{{ [has(step.result), has(step.metadata.exitedAt)] }}"})]
    assert perform(one_step(call(mock(), middleware=stack))).value == [False, False]


def test_middleware_result_does_not_exist_on_entry() -> None:
    stack = [entry(RETRY, onEntry={"when": False, "output": "{{ has(middleware.result) }}"})]
    assert perform(one_step(call(mock(), middleware=stack))).value is False


def test_metadata_of_a_middleware_can_be_read_in_its_own_phases_only() -> None:
    outer = retry(1, onSuccess={"value": "{{ [middleware.result.value, has(middleware.metadata.deadline)] }}"})
    bound = {
        "provider": "mwl:provider.middleware/mwl/timeout/v1",
        "onEntry": {"with": {"duration": "PT9S"}},
        "onSuccess": {"value": "{{ has(middleware.metadata.deadline) }}"},
    }
    steps = {"w": call(mock(), middleware=[outer, bound]), "done": returned()}
    assert perform(flow(steps)).value == [True, False]


# -- failure -----------------------------------------------------------------------------------------------------------


def test_the_first_step_that_succeeds_can_read_failure_and_clears_it() -> None:
    read = "{{ vars.seen + [failure == null ? 'none' : failure.code] }}"
    steps = {
        "w": call(failing("My.Code"), catch=[caught("first", assign={"seen": "{{ [failure.code] }}"})]),
        "first": {"action": "Pass", "assign": {"seen": read}, "next": "second"},
        "second": {"action": "Pass", "assign": {"seen": read}, "next": "done"},
        "done": returned("{{ vars.seen }}"),
    }
    assert perform(flow(steps)).value == ["My.Code", "My.Code", "none"]


@pytest.mark.parametrize(
    "step",
    [
        {"action": "Match", "cases": [], "default": {"next": "done"}},
        {"action": "Sleep", "for": "PT1S", "next": "done"},
        {"action": "Call", "call": {"provider": MOCK}, "next": "done"},
        {"action": "Gather", "over": [], "call": {"provider": MOCK}, "next": "done"},
    ],
    ids=lambda step: step["action"],
)
def test_every_kind_of_step_that_succeeds_clears_the_failure(step: dict[str, Any]) -> None:
    steps = {"w": call(failing("My.Code"), catch=[caught("next")]), "next": step, "done": returned("{{ failure }}")}
    assert perform(flow(steps)).value is None


def test_a_failed_recovery_keeps_the_history_of_both_failures() -> None:
    steps = {
        "w": call(failing("First"), catch=[caught("again")]),
        "again": call(failing("Second"), middleware=[retry(2)]),
        "done": returned(),
    }
    assert perform(flow(steps)).chain == ["Provider.Middleware.Retry.Exhausted", "Second", "First"]


def test_a_long_chain_is_cut_and_marked() -> None:
    counting = {"type": "object", "properties": {"n": {"type": "number", "default": 0}}}
    again = caught("other", "X", assign={"n": "{{ vars.n + 1.0 }}"})
    steps = {
        "w": call(failing("{{ vars.n < 99.0 ? 'X' : 'Last' }}"), catch=[again]),
        "other": call(failing("Y"), catch=[caught("w")]),
        "done": returned(),
    }
    chain = perform(flow(steps, parameters=counting)).chain
    assert chain[0] == "Last"
    assert chain[-1] == "System.FailureChainTruncated"
    assert len(chain) == 64


# -- how often, and when -----------------------------------------------------------------------------------------------


def test_now_is_pinned_to_the_construct_and_advances_with_each_attempt() -> None:
    target = mock(delay="PT1S", failure="{{ size(vars.seen) < 2 ? {'code': 'X'} : null }}", value="{{ vars.seen }}")
    stack = [retry(3, onFailure={"assign": {"seen": "{{ vars.seen + [string(now())] }}"}})]
    counting = {"type": "object", "properties": {"seen": {"type": "array", "default": []}}}
    steps = {
        "w": call(
            target, middleware=stack, output="{{ step.result.value + [string(now()), step.metadata.enteredAt] }}"
        ),
        "done": returned(),
    }
    first, second, of_step, entered = perform(flow(steps, parameters=counting)).value
    assert (first, second) == ("2026-11-20T11:00:01Z", "2026-11-20T11:00:02Z")
    assert of_step == entered == "2026-11-20T11:00:00Z"


def test_wall_time_is_read_afresh_and_recorded() -> None:
    steps = {"r": returned("{{ [wallTime() >= now(), wallTime() <= wallTime()] }}")}
    done = perform(flow(steps))
    assert done.value == [True, True]
    assert len(done.keys("clock.read")) == 3


def test_reading_a_parameter_without_a_value_faults() -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "number"}}}
    assert perform(flow({"r": returned("{{ vars.x }}")}, parameters=parameters)).result["code"] == UNREADABLE
    assert perform(flow({"r": returned("{{ has(vars.x) }}")}, parameters=parameters)).value is False
