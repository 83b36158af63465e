"""Middleware in flows: phases, shaping, and what Retry, Timeout, Loop and Finally do.

Specification: *Middleware mechanics*, *Middleware providers*.
"""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.flows import (
    FINALLY,
    LOOP,
    MOCK,
    RETRY,
    TIMEOUT,
    Performance,
    call,
    caught,
    cleanup,
    entry,
    failing,
    flow,
    mock,
    perform,
    retry,
    returned,
    subflow,
    timeout,
)

INVALID = "System.ParameterValidationFailed"
EXHAUSTED = "Provider.Middleware.Retry.Exhausted"


def wrapped(target: dict[str, Any], *stack: dict[str, Any], input: Any = None, **fields: Any) -> Performance:
    """Run a call inside a stack; the flow returns what it gives, or the failure that catch sees, and the variables."""
    steps = {
        "w": call(target, middleware=list(stack), catch=[caught("failed")], **fields),
        "done": returned("{{ {'value': step.input, 'vars': vars} }}"),
        "failed": returned("{{ {'failure': failure, 'vars': vars} }}"),
    }
    counting = {"type": "object", "properties": {"n": {"type": "number", "default": 0}}}
    return perform(flow(steps, parameters=counting), input)


def transparent(**phases: Any) -> dict[str, Any]:
    """An entry that shapes and does nothing else: a Retry that is gated off."""
    gated = {"when": False, **phases.pop("onEntry", {})}
    return entry(RETRY, onEntry=gated, **phases)


# -- threading and shaping ---------------------------------------------------------------------------------------------


def test_values_thread_the_stack_as_an_onion() -> None:
    def layer(name: str) -> dict[str, Any]:
        return transparent(
            onEntry={"output": f"{{{{ middleware.input + ['{name} down'] }}}}"},
            onSuccess={"value": f"{{{{ middleware.result.value + ['{name} up'] }}}}"},
        )

    done = wrapped(mock(), layer("outer"), layer("inner"), input=[])
    assert done.value["value"] == ["outer down", "inner down", "inner up", "outer up"]


def test_middleware_input_is_the_same_in_all_phases() -> None:
    layer = transparent(onEntry={"output": "changed"}, onSuccess={"value": "{{ middleware.input }}"})
    assert wrapped(mock(), layer, input="as received").value["value"] == "as received"


def test_an_envelope_field_that_is_not_written_is_inherited_and_the_original_chained() -> None:
    rewritten = transparent(onFailure={"code": "My.Code", "details": {"at": "here"}})
    done = wrapped(failing("Its.Code", message="broke", retryable=True, type="Odd", details=1), rewritten)
    failure = done.value["failure"]
    original = failure.pop("previous")
    assert failure == {
        "type": "Odd",
        "code": "My.Code",
        "message": "broke",
        "details": {"at": "here"},
        "retryable": True,
    }
    assert original["code"] == "Its.Code"


def test_a_block_that_writes_no_envelope_field_lets_the_failure_pass_unchanged() -> None:
    done = wrapped(failing("Its.Code"), transparent(onFailure={"assign": {"seen": "{{ middleware.result.code }}"}}))
    assert done.value == {"failure": {"type": "error", "code": "Its.Code"}, "vars": {"n": 0, "seen": "Its.Code"}}


def test_writing_only_previous_builds_a_successor_too_and_null_severs() -> None:
    done = wrapped(failing("Its.Code", message="m"), transparent(onFailure={"previous": None}))
    assert done.value["failure"] == {"type": "error", "code": "Its.Code", "message": "m", "previous": None}


@pytest.mark.parametrize(
    "written",
    [
        {"type": "{{ 'success' }}"},
        {"type": "{{ 1.0 }}"},
        {"code": "{{ null }}"},
        {"message": "{{ 3.0 }}"},
        {"retryable": "{{ 'yes' }}"},
        {"previous": "{{ {'type': 'success', 'value': 1.0} }}"},
        {"previous": "{{ 'text' }}"},
    ],
    ids=str,
)
def test_an_envelope_field_of_the_wrong_type_fails_validation(written: dict[str, Any]) -> None:
    done = wrapped(failing("Its.Code"), transparent(onFailure=written))
    assert done.value["failure"]["code"] == INVALID
    assert done.value["failure"]["previous"]["code"] == "Its.Code"
    raising = {"r": {"action": "Raise", "result": {"code": "X", **written}}}
    assert perform(flow(raising)).result["code"] == INVALID


def test_assign_of_a_phase_runs_after_its_shaping_key() -> None:
    layer = transparent(onEntry={"assign": {"x": 1}, "output": "{{ has(vars.x) }}"})
    assert wrapped(mock(), layer).value["value"] is False


# -- when a phase fails ------------------------------------------------------------------------------------------------


def test_a_failure_on_entry_runs_nothing_below_and_not_the_entrys_own_cleanup() -> None:
    broken = {
        "provider": FINALLY,
        "onEntry": {"output": "{{ nothing.there }}"},
        "onAlways": {"with": {"call": mock()}},
    }
    outer = transparent(onFailure={"assign": {"outer": "{{ middleware.result.code }}"}})
    done = wrapped(mock(), outer, broken)
    assert done.value["vars"]["outer"] == "System.ExpressionEvaluationError"
    assert done.keys("effect.call") == []


def test_a_failure_on_the_way_up_supersedes_and_is_not_handled_by_its_own_entry() -> None:
    broken = transparent(
        onSuccess={"value": "{{ nothing.there }}"},
        onFailure={"code": "Handled.ByItself"},
        onAlways={"assign": {"cleaned": True}},
    )
    done = wrapped(mock(value=1), broken)
    assert done.value["failure"]["code"] == "System.ExpressionEvaluationError"
    assert "previous" not in done.value["failure"], "a displaced success is not recorded"
    assert done.value["vars"]["cleaned"] is True


def test_a_failure_in_on_failure_chains_the_one_it_displaces() -> None:
    done = wrapped(failing("Its.Code"), transparent(onFailure={"assign": {"x": "{{ nothing.there }}"}}))
    assert done.value["failure"]["code"] == "System.ExpressionEvaluationError"
    assert done.value["failure"]["previous"]["code"] == "Its.Code"


def test_a_phase_without_parameters_takes_only_an_empty_with() -> None:
    assert wrapped(mock(), transparent(onSuccess={"with": {}})).value["value"] is None
    assert wrapped(mock(), transparent(onSuccess={"with": {"x": 1}})).value["failure"]["code"] == INVALID


def test_arguments_of_a_phase_are_validated_when_it_runs() -> None:
    bad = entry(RETRY, onEntry={"with": "{{ {'policies': []} }}"})
    assert wrapped(mock(), bad).value["failure"]["code"] == INVALID
    late = retry(3, onFailure={"with": {"delay": "soon"}})
    done = wrapped(failing("Its.Code"), late)
    assert done.value["failure"]["code"] == INVALID
    assert done.value["failure"]["previous"]["code"] == "Its.Code"
    assert wrapped(mock(value=1), late).value["value"] == 1


# -- Retry -------------------------------------------------------------------------------------------------------------


def policies(*found: dict[str, Any], **phases: Any) -> dict[str, Any]:
    return entry(RETRY, onEntry={"with": {"policies": list(found)}}, **phases)


def gaps(done: Performance) -> list[float]:
    """Seconds between the attempts of the run's only retried call."""
    called = [event.time for event in done.events if event.type == "effect.call"]
    return [(later - earlier).total_seconds() for earlier, later in pairwise(called)]


def test_the_first_policy_that_matches_handles_a_failure_and_each_counts_for_itself() -> None:
    target = failing("{{ vars.n == 1.0 ? 'B.X' : 'A.X' }}")
    stack = policies(
        {"match": {"codes": ["A.*"]}, "attempts": 3},
        {"match": {"codes": ["B.*"]}, "attempts": 2},
        {"match": {"codes": ["*"]}, "attempts": 9},
        onFailure={"assign": {"n": "{{ vars.n + 1.0 }}"}},
    )
    failure = wrapped(target, stack).value["failure"]
    assert failure["code"] == EXHAUSTED
    assert failure["details"] == {"attempts": 4, "policy": 0}
    assert failure["previous"]["code"] == "A.X"


def test_a_failure_that_no_policy_matches_passes_through_and_is_shaped() -> None:
    done = wrapped(failing("C.X"), retry(3, "A.*", onFailure={"code": "Shaped"}))
    assert done.value["failure"]["code"] == "Shaped"
    assert done.value["failure"]["previous"]["code"] == "C.X"
    assert len(done.keys("effect.call")) == 1


def test_envelope_keys_apply_to_the_exhausted_failure() -> None:
    done = wrapped(failing("A.X"), retry(2, onFailure={"code": "Shaped"}))
    failure = done.value["failure"]
    assert failure["code"] == "Shaped"
    assert failure["details"] == {"attempts": 2, "policy": 0}
    assert failure["previous"]["code"] == EXHAUSTED
    assert failure["previous"]["previous"]["code"] == "A.X"


def test_one_attempt_is_no_retry() -> None:
    done = wrapped(failing("A.X"), retry(1))
    assert done.value["failure"]["details"] == {"attempts": 1, "policy": 0}


def test_variables_are_restored_and_only_the_gaps_assignments_cross() -> None:
    inner = subflow({"r": {"action": "Raise", "result": {"code": "X"}}})
    target = {"flow": inner, "onFailure": {"assign": {"drift": "{{ has(vars.drift) ? vars.drift + 1.0 : 1.0 }}"}}}
    stack = entry(
        RETRY,
        onEntry={"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 3}]}, "assign": {"armed": True}},
        onFailure={"assign": {"n": "{{ vars.n + 1.0 }}", "aftermath": "{{ vars.drift }}"}},
    )
    done = wrapped(target, stack)
    assert done.value["vars"] == {"n": 3, "armed": True, "drift": 1, "aftermath": 1}


def test_every_attempt_receives_the_same_input_and_evaluates_afresh() -> None:
    target = {**mock(failure="{{ vars.n < 2.0 ? {'code': 'X'} : null }}"), "input": "{{ [call.input, vars.n] }}"}
    stack = retry(3, onFailure={"assign": {"n": "{{ vars.n + 1.0 }}"}})
    assert wrapped(target, stack, input="in").value["value"] == ["in", 2]


def test_the_attempt_is_contributed() -> None:
    target = mock(failure="{{ vars.n < 2.0 ? {'code': 'X'} : null }}")
    read = "{{ middleware.metadata.attempt }}"
    stack = retry(3, onFailure={"assign": {"n": read}}, onSuccess={"value": read})
    assert wrapped(target, stack).value["value"] == 3


def test_a_retry_gated_on_failure_lets_it_pass() -> None:
    done = wrapped(failing("X"), retry(3, onFailure={"when": "{{ middleware.result.code != 'X' }}"}))
    assert done.value["failure"]["code"] == "X"


def test_the_schedule_grows_to_its_cap() -> None:
    backoff = {"initial": "PT1S", "rate": 3, "max": "PT5S"}
    done = wrapped(failing("X"), policies({"match": {"codes": ["*"]}, "attempts": 5, "backoff": backoff}))
    assert gaps(done) == pytest.approx([1, 3, 5, 5])


def test_a_delay_overrides_one_gap_and_the_schedule_keeps_its_position() -> None:
    backoff = {"initial": "PT1S", "rate": 2}
    stack = policies(
        {"match": {"codes": ["*"]}, "attempts": 4, "backoff": backoff},
        onFailure={"with": {"delay": "{{ middleware.metadata.attempt == 2.0 ? 'PT30S' : null }}"}},
    )
    assert gaps(wrapped(failing("X"), stack)) == pytest.approx([1, 30, 4])


@pytest.mark.parametrize(
    ("jitter", "low", "high"), [("full", 0, 8), ("equal", 4, 8), ("decorrelated", 8, 24), ("none", 8, 8)]
)
def test_jitter_keeps_to_its_range_and_replays(jitter: str, low: float, high: float) -> None:
    backoff = {"initial": "PT8S", "jitter": jitter}
    done = wrapped(failing("X"), policies({"match": {"codes": ["*"]}, "attempts": 2, "backoff": backoff}))
    [gap] = gaps(done)
    assert low <= gap <= high


def test_a_retry_of_a_whole_flow_runs_its_graph_again() -> None:
    steps = {
        "w": call(failing("{{ vars.n < 2.0 ? 'X' : 'Y' }}")),
        "done": returned(),
    }
    counting = {"type": "object", "properties": {"n": {"type": "number", "default": 0}}}
    stack = [retry(5, "X", onFailure={"assign": {"n": "{{ vars.n + 1.0 }}"}})]
    done = perform(flow(steps, parameters=counting, middleware=stack))
    assert done.result["code"] == "Y"
    assert done.keys("node.enter").count("main/w") == 3


# -- Loop --------------------------------------------------------------------------------------------------------------


def test_a_loop_carries_its_value_and_counts() -> None:
    layer = entry(
        LOOP,
        onSuccess={
            "when": "{{ middleware.metadata.iteration < 3.0 }}",
            "value": "{{ middleware.result.value + [middleware.metadata.iteration] }}",
        },
    )
    assert wrapped(mock(), layer, input=[]).value["value"] == [1, 2, 3]


def test_the_continuation_decides_before_the_assignment() -> None:
    layer = entry(LOOP, onSuccess={"when": "{{ vars.n < 2.0 }}", "assign": {"n": "{{ vars.n + 1.0 }}"}})
    done = wrapped(mock(), layer)
    assert done.value["vars"]["n"] == 3
    assert len(done.keys("effect.call")) == 3


def test_a_loop_of_no_runs_emits_what_its_entry_made() -> None:
    layer = entry(LOOP, onEntry={"when": False, "output": "empty"}, onSuccess={"when": True, "value": "never"})
    done = wrapped(mock(), layer)
    assert done.value["value"] == "empty"
    assert done.keys("effect.call") == []


def test_a_failing_iteration_passes_the_loop() -> None:
    layer = entry(LOOP, onSuccess={"when": True}, onFailure={"assign": {"at": "{{ middleware.metadata.iteration }}"}})
    done = wrapped(failing("X"), layer)
    assert done.value["failure"]["code"] == "X"
    assert done.value["vars"]["at"] == 1


def test_entries_inside_a_loop_are_established_anew_for_every_run() -> None:
    layer = entry(LOOP, onSuccess={"when": "{{ middleware.metadata.iteration < 3.0 }}"})
    inner = transparent(onEntry={"assign": {"n": "{{ vars.n + 1.0 }}"}})
    assert wrapped(mock(), layer, inner).value["vars"]["n"] == 3


def test_a_timeout_outside_a_loop_bounds_all_runs_and_one_inside_bounds_each() -> None:
    thrice = entry(LOOP, onSuccess={"when": "{{ middleware.metadata.iteration < 3.0 }}"})
    target = mock(delay="PT2S", value=1)
    assert wrapped(target, timeout("PT5S"), thrice).value["failure"]["code"] == "Provider.Middleware.Timeout.Exceeded"
    assert wrapped(target, thrice, timeout("PT5S")).value["value"] == 1


def test_a_loop_without_anything_outside_can_still_be_cancelled() -> None:
    steps = {"a": {"action": "Pass", "next": "b"}, "b": {"action": "Pass", "next": "a"}, "r": returned()}
    done = perform(flow(steps), commands=[("cancel", {"reason": "enough"})])
    assert done.chain == ["System.Cancelled"]


# -- Finally -----------------------------------------------------------------------------------------------------------


def test_the_cleanups_result_is_discarded_and_its_arms_may_assign() -> None:
    target = {**mock(value="cleaned"), "onSuccess": {"assign": {"seen": "{{ call.result.value }}"}}}
    done = wrapped(mock(value="out"), cleanup(target))
    assert done.value == {"value": "out", "vars": {"n": 0, "seen": "cleaned"}}


def test_a_cleanup_runs_inside_a_stack_of_its_own() -> None:
    target = failing("{{ vars.n < 2.0 ? 'X' : 'Y' }}")
    stack = [retry(5, "X", onFailure={"assign": {"n": "{{ vars.n + 1.0 }}"}})]
    done = wrapped(mock(value=1), cleanup(target, middleware=stack))
    assert done.value["failure"]["code"] == "Y"
    assert len([key for key in done.keys("effect.call") if "onAlways" in key]) == 3


def test_a_cleanup_can_be_gated() -> None:
    layer = {
        "provider": FINALLY,
        "onAlways": {"when": "{{ middleware.result.type != 'success' }}", "with": {"call": mock()}},
    }
    assert len(wrapped(mock(), layer).keys("effect.call")) == 1
    assert len(wrapped(failing("X"), layer).keys("effect.call")) == 2


def test_a_cleanup_sees_what_everything_inside_has_made_of_the_result() -> None:
    probe = {
        **mock(),
        "input": "{{ middleware.result.code }}",
        "onSuccess": {"assign": {"saw": "{{ call.result.value }}"}},
    }
    done = wrapped(failing("Its.Code"), cleanup(probe), transparent(onFailure={"code": "Rewritten"}))
    assert done.value["vars"]["saw"] == "Rewritten"


def test_a_cleanup_may_be_a_flow_and_may_hold_a_finally_itself() -> None:
    tidy = subflow({"t": call(mock()), "done": returned()})
    done = wrapped(mock(), cleanup({"flow": tidy}, middleware=[cleanup({"provider": MOCK})]))
    assert len(done.keys("effect.call")) == 3


def test_validation_at_frame_entry_skips_the_frames_cleanup() -> None:
    steps = {"r": returned()}
    required = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    done = perform(flow(steps, parameters=required, middleware=[cleanup(mock())]))
    assert done.chain == [INVALID]
    assert done.keys("effect.call") == []


def test_catch_does_not_reach_what_the_flows_own_middleware_makes() -> None:
    inner = subflow(
        {"w": call(mock(), catch=[caught("handled")]), "done": returned(), "handled": returned("caught inside")},
        middleware=[transparent(onSuccess={"value": "{{ nothing.there }}"})],
    )
    steps = {
        "w": call({"flow": inner}, catch=[caught("outside")]),
        "done": returned(),
        "outside": returned("caught outside"),
    }
    assert perform(flow(steps)).value == "caught outside"


def test_an_invalid_duration_of_a_timeout_fails_validation() -> None:
    assert (
        wrapped(mock(), entry(TIMEOUT, onEntry={"with": {"duration": "{{ 'soon' }}"}})).value["failure"]["code"]
        == INVALID
    )
