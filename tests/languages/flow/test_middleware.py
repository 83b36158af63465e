"""Middleware in flows: what the tables of cases do not hold, as the order of a block and the lengths of gaps.

Specification: *Middleware mechanics*, *Middleware providers*.
"""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.flow_cases import INVALID, policies, policy
from tests.support.flows import RETRY, Performance, call, caught, entry, failing, flow, mock, perform, retry, returned


def run_call(target: dict[str, Any], *stack: dict[str, Any]) -> Performance:
    """Run a call inside a stack; the flow returns its value, or the failure that ``catch`` receives."""
    steps = {
        "w": call(target, middleware=list(stack), catch=[caught("failed")]),
        "done": returned("{{ {'value': step.input} }}"),
        "failed": returned("{{ {'failure': failure} }}"),
    }
    return perform(flow(steps))


def gated_retry(**phases: Any) -> dict[str, Any]:
    """A Retry that is gated off: it only shapes."""
    return entry(RETRY, onEntry={"when": False, **phases.pop("onEntry", {})}, **phases)


def test_writing_only_previous_builds_a_successor_and_null_cuts_the_chain() -> None:
    done = run_call(failing("Its.Code", message="m"), gated_retry(onFailure={"previous": None}))
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
    done = run_call(failing("Its.Code"), gated_retry(onFailure=written))
    assert done.value["failure"]["code"] == INVALID
    assert done.value["failure"]["previous"]["code"] == "Its.Code"
    raising = {"r": {"action": "Raise", "result": {"code": "X", **written}}}
    assert perform(flow(raising)).result["code"] == INVALID


def test_the_assignments_of_a_phase_run_after_its_shaping_key() -> None:
    layer = gated_retry(onEntry={"assign": {"x": 1}, "output": "{{ has(vars.x) }}"})
    assert run_call(mock(), layer).value["value"] is False


def test_a_phase_without_parameters_takes_only_an_empty_with() -> None:
    assert run_call(mock(), gated_retry(onSuccess={"with": {}})).value["value"] is None
    assert run_call(mock(), gated_retry(onSuccess={"with": {"x": 1}})).value["failure"]["code"] == INVALID


def test_arguments_of_a_phase_are_validated_when_it_runs() -> None:
    late = retry(3, onFailure={"with": {"delay": "soon"}})
    failure = run_call(failing("Its.Code"), late).value["failure"]
    assert (failure["code"], failure["previous"]["code"]) == (INVALID, "Its.Code")
    assert run_call(mock(value=1), late).value["value"] == 1


@pytest.mark.parametrize(
    ("jitter", "low", "high"), [("full", 0, 8), ("equal", 4, 8), ("decorrelated", 8, 24), ("none", 8, 8)]
)
def test_jitter_keeps_to_its_range_and_replays(jitter: str, low: float, high: float) -> None:
    backoff = {"initial": "PT8S", "jitter": jitter}
    done = run_call(failing("X"), policies(policy(["*"], 2, backoff=backoff)))
    attempts = [event.time for event in done.events if event.type == "effect.call"]
    [gap] = [(later - earlier).total_seconds() for earlier, later in pairwise(attempts)]
    assert low <= gap <= high


def test_a_flow_that_runs_in_a_circle_can_be_cancelled() -> None:
    steps = {"a": {"action": "Pass", "next": "b"}, "b": {"action": "Pass", "next": "a"}, "r": returned()}
    done = perform(flow(steps), commands=[("cancel", {"reason": "enough"})])
    assert done.chain == ["System.Cancelled"]
