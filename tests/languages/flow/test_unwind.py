"""Interruptions of flows: timeouts, Gathers that have enough results, external cancellation; their clean-ups.

Specification: *Execution model*, Cancellation.
"""

from typing import Any

from tests.support.flow_cases import one_step
from tests.support.flows import (
    Performance,
    call,
    caught,
    cleanup,
    failing,
    flow,
    mock,
    perform,
    retry,
    returned,
    subflow,
    timeout,
)

SLOW = mock(delay="PT60S", value="slow")


def count_cleanups(done: Performance) -> int:
    return len([key for key in done.keys("effect.call") if "onAlways" in key])


# -- the chain of a timeout --------------------------------------------------------------------------------------------


def test_a_timeout_does_not_convert_the_cancellation_of_an_outer_one() -> None:
    done = perform(one_step(call(SLOW, middleware=[timeout("PT5S"), timeout("PT30S"), cleanup(mock())])))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert "PT5S" in done.result["message"]


def test_a_failed_cleanup_inside_a_subflow_leads_the_chain_of_the_timeout_outside() -> None:
    inner = subflow({"in": call(SLOW, middleware=[cleanup(failing("Inner.Cleanup"))]), "done": returned()})
    done = perform(one_step(call({"flow": inner}, middleware=[timeout("PT5S"), cleanup(failing("Outer.Cleanup"))])))
    expected = ["Outer.Cleanup", "Inner.Cleanup", "System.Cancelled", "Provider.Middleware.Timeout.Exceeded"]
    assert done.chain == expected


def test_neither_arms_nor_catch_nor_failure_phases_take_part_in_an_unwind() -> None:
    marks = {"assign": {"touched": "arm"}}
    inner = subflow(
        {
            "in": call(
                {**SLOW, "onFailure": marks, "onSuccess": marks},
                middleware=[retry(3, onFailure={"assign": {"touched": "phase"}})],
                catch=[caught("in", assign={"touched": "catch"})],
            ),
            "done": returned(),
        },
        middleware=[cleanup({**mock(), "onSuccess": {"assign": {"cleaned": True}}})],
    )
    steps = {
        "work": call(
            {"flow": inner, "onFailure": {"assign": {"arm": True}}},
            middleware=[timeout("PT5S")],
            catch=[caught("handled")],
        ),
        "done": returned(),
        "handled": returned("{{ vars }}"),
    }
    done = perform(flow(steps))
    assert done.value == {}, "an interrupted call has no arm"
    assert "Provider.Middleware.Retry.Exhausted" not in str(done.events)


def test_cleanups_run_from_the_inside_out_across_frames_and_once_each() -> None:
    inner = subflow(
        {"in": call(SLOW, middleware=[cleanup(mock(value=1))]), "done": returned()}, middleware=[cleanup(mock(value=2))]
    )
    steps = {"work": call({"flow": inner}, middleware=[timeout("PT5S"), cleanup(mock(value=3))]), "done": returned()}
    done = perform(flow(steps, middleware=[cleanup(mock(value=4))]))
    cleaned = [key for key in done.keys("effect.call") if "onAlways" in key]
    assert [key.split("#")[0] for key in cleaned] == [
        "main/work:call/in:mw0.onAlways.call",
        "main/work:call.mw0.onAlways.call",
        "main/work:mw1.onAlways.call",
        "main:mw0.onAlways.call",
    ]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_timeout_that_expires_during_a_cleanup_lets_it_finish() -> None:
    stack = [timeout("PT5S"), cleanup(mock(delay="PT10S"))]
    done = perform(one_step(call(mock(value=1), middleware=stack)))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert count_cleanups(done) == 1


def test_the_deadline_can_be_assigned_to_a_variable() -> None:
    stack = [
        {
            **timeout("PT5S"),
            "onEntry": {
                "with": {"duration": "PT5S"},
                "assign": {
                    "deadline": "{{ middleware.metadata.deadline }}",
                    "from": "{{ now() == timestamp(middleware.metadata.enteredAt) }}",
                },
            },
        }
    ]
    steps = {
        "work": call(
            mock(value="{{ vars.deadline }}"), middleware=stack, output="{{ [step.result.value, vars.from] }}"
        ),
        "done": returned(),
    }
    value = perform(flow(steps)).value
    assert value == ["2026-11-20T11:00:05Z", True]


# -- external cancellation ---------------------------------------------------------------------------------------------

CANCEL = ("cancel", {"reason": "operator", "message": "not today"})


def test_an_external_cancellation_is_the_root_frames_result_without_a_previous() -> None:
    done = perform(one_step({"action": "Sleep", "for": "PT1H", "next": "done"}), commands=[CANCEL])
    assert done.result == {"type": "cancellation", "code": "System.Cancelled", "message": "not today"}


def test_an_external_cancellation_runs_every_established_cleanup() -> None:
    nap = {"action": "Sleep", "for": "PT1H", "next": "done"}
    inner = subflow({"nap": nap, "done": returned()}, middleware=[cleanup(mock())])
    steps = {"work": call({"flow": inner}, middleware=[cleanup(mock())], catch=[caught("done")]), "done": returned()}
    done = perform(flow(steps, middleware=[cleanup(mock())]), commands=[CANCEL])
    assert done.chain == ["System.Cancelled"]
    assert count_cleanups(done) == 3


def test_a_failed_cleanup_leads_the_chain_of_an_external_cancellation() -> None:
    steps = {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    done = perform(flow(steps, middleware=[cleanup(failing("Cleanup.Failed"))]), commands=[CANCEL])
    assert done.chain == ["Cleanup.Failed", "System.Cancelled"]


def test_a_second_cancellation_does_not_restart_the_teardown() -> None:
    steps = {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    slow_cleanup = cleanup(mock(delay="PT10S"))
    done = perform(flow(steps, middleware=[slow_cleanup]), commands=[CANCEL, CANCEL])
    assert done.chain == ["System.Cancelled"]
    assert count_cleanups(done) == 1


# -- a Gather that has enough results ----------------------------------------------------------------------------------


def gather(calls: list[dict[str, Any]], completion: dict[str, Any], **fields: Any) -> Performance:
    steps = {
        "fan": {
            "action": "Gather",
            "calls": calls,
            "completion": completion,
            "output": "{{ step.results }}",
            "next": "done",
            "catch": [caught("failed", output="{{ step.results }}")],
            **fields,
        },
        "done": returned(),
        "failed": returned("{{ {'failed': failure, 'results': step.input} }}"),
    }
    return perform(flow(steps))


def codes(results: list[dict[str, Any]]) -> list[str]:
    return [result.get("code", "success") for result in results]


def test_a_dispatched_frame_cleans_up_when_the_gather_no_longer_needs_it() -> None:
    wrapped = subflow({"in": call(SLOW, middleware=[cleanup(mock())]), "done": returned()})
    done = gather([mock(value=1), {"flow": wrapped}], {"successes": 1, "wait": False})
    assert codes(done.value) == ["success", "System.GatherDispatchCancelled"]
    assert count_cleanups(done) == 1


def test_an_impossible_success_cancels_the_rest_of_a_gather() -> None:
    done = gather([failing("My.Failure"), SLOW], {"successes": 2, "wait": False})
    evidence = done.value["failed"]["details"]
    assert codes([one["result"] for one in evidence["failures"]]) == ["My.Failure", "System.GatherDispatchCancelled"]
    assert evidence["failureCount"] == 2


def test_a_policy_that_is_met_at_once_skips_every_dispatch() -> None:
    done = gather([SLOW, SLOW], {"successes": 0, "wait": False})
    assert codes(done.value) == ["System.GatherDispatchSkipped"] * 2
    assert done.keys("effect.call") == []


def test_no_arm_runs_for_a_dispatch_that_was_cancelled() -> None:
    marked = {**SLOW, "onFailure": {"assign": {"touched": True}}}
    done = gather([mock(value=1), marked], {"successes": 1, "wait": False}, output="{{ has(vars.touched) }}")
    assert done.value is False


def test_a_timeout_around_a_gather_unwinds_all_of_its_dispatches() -> None:
    wrapped = subflow({"in": call(SLOW, middleware=[cleanup(mock())]), "done": returned()})
    fan = {"action": "Gather", "over": [1, 2, 3], "call": {"flow": wrapped}, "next": "done"}
    done = perform(one_step(fan, middleware=[timeout("PT5S")]))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert count_cleanups(done) == 3
