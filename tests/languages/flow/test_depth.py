"""How deep values may nest and how large they may be, independent of Python's stack and memory."""

from typing import Any

import pytest

from callboard.languages.cel.budget import STEPS_MAX
from callboard.languages.flow.depth import CHARS_MAX, DEPTH_MAX, TOO_DEEP, TOO_LARGE, find_excess, too_deep
from callboard.lib.step_limits import Steps, TooManySteps
from tests.support.flow_cases import one_step
from tests.support.flows import call, caught, failing, flow, mock, perform, returned, subflow

FAILED = "System.ExpressionEvaluationError"


def nested(depth: int) -> Any:
    """A value of that depth, of arrays and objects in turn."""
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("depth", [0, 1, 2, DEPTH_MAX - 1, DEPTH_MAX])
def test_values_up_to_the_bound_are_not_too_deep(depth: int) -> None:
    assert not too_deep(nested(depth))
    assert too_deep([1, nested(depth), "x"], depth)
    assert find_excess(nested(depth), Steps(1_000)) is None


def test_a_value_deeper_than_the_stack_of_python_is_measured() -> None:
    assert too_deep(nested(100_000))
    assert find_excess(nested(100_000), Steps(1_000)) == TOO_DEEP


def test_a_shared_part_is_measured_once_for_depth() -> None:
    value: Any = []
    for _ in range(100):
        value = [value, value]
    assert not too_deep(value)


def test_a_shared_part_counts_every_time_for_size() -> None:
    text = "x" * 1_000
    assert find_excess([[text, {"a": text}]] * 15_000, Steps(STEPS_MAX)) is None
    assert find_excess([[text, {"a": text}]] * 16_000, Steps(STEPS_MAX)) == TOO_LARGE
    assert find_excess([{text: 1}] * 32_000, Steps(STEPS_MAX)) == TOO_LARGE
    assert find_excess("x" * (CHARS_MAX + 1), Steps(10)) is None
    value: Any = text
    for _ in range(100):
        value = [value, value]
    assert find_excess(value, Steps(1_000)) == TOO_LARGE


def test_measuring_counts_its_steps() -> None:
    with pytest.raises(TooManySteps):
        find_excess([1] * 5_000, Steps(1_000))


def test_a_value_that_is_too_large_fails() -> None:
    steps = {
        "long": {
            "action": "Pass",
            "assign": {"text": "{{ 'x'" + ".replace('x', 'xxxxxxxxxx')" * 5 + " }}"},
            "next": "m",
        },
        "m": {"action": "Pass", "output": "{{ lists.range(1000).map(i, vars.text) }}", "next": "done"},
        "done": returned(),
    }
    done = perform(flow(steps))
    assert (done.result["code"], done.result["message"]) == (FAILED, f"the value {TOO_LARGE}")


def test_the_expressions_of_one_field_share_their_steps() -> None:
    once = "{{ lists.range(10000).filter(i, i > 0).size() }}"
    assert perform(one_step({"action": "Pass", "output": [once] * 9, "next": "done"})).value
    for field in (
        {"output": [once] * 90},
        {"output": {"a": [once] * 90}},
        {"assign": dict.fromkeys(map(str, range(90)), once)},
    ):
        done = perform(one_step({"action": "Pass", **field, "next": "done"}))
        assert (done.result["code"], done.result["message"]) == (
            FAILED,
            f"the expression takes more than {STEPS_MAX} steps",
        )


ECHO = mock(value="{{ call.input }}")


def repeat_change(**change: Any) -> dict[str, Any]:
    """A flow that changes its value on every turn until that fails; it returns the number of turns."""
    steps = {
        "start": {"action": "Pass", "assign": {"turns": 0}, "next": "turn"},
        "turn": call(ECHO, "count", catch=[caught("failed", FAILED)], **change),
        "count": {"action": "Pass", "assign": {"turns": "{{ vars.turns + 1.0 }}"}, "next": "turn"},
        "failed": returned({"turns": "{{ vars.turns }}", "message": "{{ failure.message }}"}),
    }
    return flow(steps)


@pytest.mark.parametrize(
    ("change", "turns"),
    [
        ({"output": {"a": "{{ step.result.value }}"}}, DEPTH_MAX),
        ({"output": [["{{ step.result.value }}"]]}, DEPTH_MAX // 2),
        ({"output": "{{ [step.result.value] }}"}, DEPTH_MAX),
        ({"output": "{{ {'a': [1, step.result.value]} }}"}, DEPTH_MAX // 2),
        ({"output": "{{ [step.result.value].map(x, [x]) }}"}, DEPTH_MAX // 2),
        # The engine wraps these in values of its own.
        ({"output": "{{ step.result }}"}, DEPTH_MAX),
        ({"assign": {"all": "{{ vars }}"}}, DEPTH_MAX),
        ({"input": "{{ step }}"}, DEPTH_MAX),
    ],
)
def test_a_loop_that_wraps_its_value_fails_at_the_bound(change: dict[str, Any], turns: int) -> None:
    output: Any = perform(repeat_change(**change), 1).value
    assert output["message"] == f"the value nests deeper than {DEPTH_MAX} levels"
    assert turns - 2 <= output["turns"] <= turns


def test_a_gather_that_wraps_its_value_fails_at_the_bound() -> None:
    """Its results are a list of envelopes of its input, so that every turn adds two levels."""
    fan = {"action": "Gather", "calls": [ECHO], "output": "{{ step.results[0] }}", "next": "s"}
    done = perform(one_step(fan), 1)
    assert done.result["code"] == "System.GatherCompletionUnmet"
    [failure] = done.result["details"]["failures"]
    assert failure["result"]["code"] == FAILED
    assert failure["result"]["message"] == f"the list of results nests deeper than {DEPTH_MAX} levels"
    caught_fan = {**fan, "calls": [ECHO], "catch": [caught("done")]}
    assert perform(one_step(caught_fan, then="{{ 'caught' }}"), 1).value == "caught"


def test_a_gather_that_receives_its_own_value_fails_at_the_bound() -> None:
    fan = {"action": "Gather", "calls": [ECHO], "next": "s"}
    assert perform(one_step(fan), 1).result["code"] == "System.GatherCompletionUnmet"


def test_a_failure_leaves_out_a_value_that_would_nest_too_deep() -> None:
    inner = subflow({"done": returned()}, parameters={"type": "object", "properties": {"a": {"type": "string"}}})
    steps = {"w": call({"flow": inner, "with": {"a": "{{ step.input }}"}}), "done": returned()}
    assert perform(flow(steps), nested(DEPTH_MAX - 2)).result["details"]["value"] == nested(DEPTH_MAX - 2)
    deepest = perform(flow(steps), nested(DEPTH_MAX - 1)).result
    assert deepest["code"] == "System.ParameterValidationFailed"
    assert "details" in deepest
    raising = {"r": {"action": "Raise", "result": {"code": "R", "details": ["{{ step.input }}"]}}}
    assert perform(flow(raising), nested(DEPTH_MAX - 1)).result["details"] == [nested(DEPTH_MAX - 1)]
    assert perform(flow(raising), nested(DEPTH_MAX)).result["code"] == FAILED


def test_failures_that_hold_failures_stay_within_the_bound() -> None:
    """A Gather's failure holds the failures of its dispatches, which hold those of theirs."""
    inner = failing("X")
    flows: dict[str, Any] = {}
    for level in range(60):
        fan = {"action": "Gather", "calls": [inner], "next": "done"}
        flows[f"f{level}"] = subflow({"fan": fan, "done": returned()})
        inner = {"flow": f"f{level}"}
    done = perform(one_step(call(inner), flows=flows))
    assert done.result["code"] == "System.GatherCompletionUnmet"
    assert not too_deep(done.result, DEPTH_MAX + 3)
