"""Interruption in flows: timeouts, Gathers that need no more, external cancellation; what cleans up, what emerges.

Specification: *Execution model*, Cancellation.
"""

from typing import Any

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


def slow_with(*stack: dict[str, Any], catch: list[dict[str, Any]] | None = None) -> Performance:
    steps = {
        "work": call(SLOW, middleware=list(stack), catch=catch or []),
        "done": returned(),
        "handled": returned("{{ failure }}"),
    }
    return perform(flow(steps))


# -- the conversion seam -----------------------------------------------------------------------------------------------


def test_a_timeout_surfaces_as_its_own_failure_without_a_trace_of_the_cancellation() -> None:
    done = slow_with(timeout("PT5S"))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert done.result["type"] == "timeout"


def test_catch_sees_the_timeout_as_an_ordinary_failure() -> None:
    done = slow_with(timeout("PT5S"), catch=[{"match": {"types": ["timeout"]}, "next": "handled"}])
    assert done.value["code"] == "Provider.Middleware.Timeout.Exceeded"


def test_a_cleanup_below_the_timeout_sees_the_cancellation_with_its_cause() -> None:
    done = perform(
        flow(
            {
                "work": call(
                    SLOW,
                    middleware=[
                        timeout("PT5S"),
                        cleanup(
                            {
                                **mock(),
                                "input": "{{ middleware.result }}",
                                "onSuccess": {"assign": {"saw": "{{ call.result.value }}"}},
                            }
                        ),
                    ],
                    catch=[caught("handled")],
                ),
                "done": returned(),
                "handled": returned("{{ vars.saw }}"),
            }
        )
    )
    assert done.value["code"] == "System.Cancelled"
    assert done.value["type"] == "cancellation"
    assert done.value["previous"]["code"] == "Provider.Middleware.Timeout.Exceeded"


def test_a_cleanup_that_fails_on_the_way_out_is_not_converted_away() -> None:
    done = slow_with(timeout("PT5S"), cleanup(failing("Cleanup.Failed")))
    assert done.chain == ["Cleanup.Failed", "System.Cancelled", "Provider.Middleware.Timeout.Exceeded"]


def test_a_timeout_does_not_convert_the_cancellation_of_an_outer_one() -> None:
    done = slow_with(timeout("PT5S"), timeout("PT30S"), cleanup(mock()))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert "PT5S" in done.result["message"]


def test_a_failed_cleanup_inside_a_subflow_leads_the_chain_of_the_timeout_outside() -> None:
    inner = subflow({"in": call(SLOW, middleware=[cleanup(failing("Inner.Cleanup"))]), "done": returned()})
    done = perform(
        flow(
            {
                "work": call({"flow": inner}, middleware=[timeout("PT5S"), cleanup(failing("Outer.Cleanup"))]),
                "done": returned(),
            }
        )
    )
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


def test_a_bound_that_has_already_passed_is_exceeded_at_once() -> None:
    for duration in ("PT0S", "-PT5S"):
        done = slow_with(timeout(duration))
        assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]


def test_a_result_that_has_risen_in_time_is_accepted() -> None:
    done = perform(flow({"work": call(mock(delay="PT4S", value=1), middleware=[timeout("PT5S")]), "done": returned()}))
    assert done.value == 1


def test_a_bound_that_runs_out_during_a_cleanup_lets_it_finish_and_then_counts() -> None:
    stack = [timeout("PT5S"), cleanup(mock(delay="PT10S"))]
    done = perform(flow({"work": call(mock(value=1), middleware=stack), "done": returned()}))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert len([key for key in done.keys("effect.call") if "onAlways" in key]) == 1


def test_a_timeout_around_a_whole_flow_bounds_its_graph() -> None:
    steps = {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    done = perform(flow(steps, middleware=[timeout("PT5S")]))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]


def test_a_timeout_gated_off_bounds_nothing() -> None:
    gated = {"provider": timeout("PT5S")["provider"], "onEntry": {"when": False, "with": {"duration": "PT5S"}}}
    assert slow_with(gated).value == "slow"


def test_the_deadline_is_contributed_and_can_be_published_inward() -> None:
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
    done = perform(
        flow({"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}), commands=[CANCEL]
    )
    assert done.result == {"type": "cancellation", "code": "System.Cancelled", "message": "not today"}


def test_an_external_cancellation_runs_the_cleanups_of_everything_that_is_established() -> None:
    nap = {"action": "Sleep", "for": "PT1H", "next": "done"}
    inner = subflow({"nap": nap, "done": returned()}, middleware=[cleanup(mock())])
    steps = {"work": call({"flow": inner}, middleware=[cleanup(mock())], catch=[caught("done")]), "done": returned()}
    done = perform(flow(steps, middleware=[cleanup(mock())]), commands=[CANCEL])
    assert done.chain == ["System.Cancelled"]
    assert len([key for key in done.keys("effect.call") if "onAlways" in key]) == 3


def test_a_cleanup_that_fails_over_an_external_cancellation_is_what_the_run_ends_with() -> None:
    steps = {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    done = perform(flow(steps, middleware=[cleanup(failing("Cleanup.Failed"))]), commands=[CANCEL])
    assert done.chain == ["Cleanup.Failed", "System.Cancelled"]


def test_a_second_cancellation_does_not_restart_the_teardown() -> None:
    steps = {"nap": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    slow_cleanup = cleanup(mock(delay="PT10S"))
    done = perform(flow(steps, middleware=[slow_cleanup]), commands=[CANCEL, CANCEL])
    assert done.chain == ["System.Cancelled"]
    assert len([key for key in done.keys("effect.call") if "onAlways" in key]) == 1


# -- a Gather that needs no more ---------------------------------------------------------------------------------------


def gathered(calls: list[dict[str, Any]], completion: dict[str, Any], **fields: Any) -> Performance:
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


def test_dispatches_in_flight_are_cancelled_and_those_behind_the_cap_are_skipped() -> None:
    done = gathered([mock(value=1), SLOW, SLOW], {"successes": 1, "wait": False}, concurrency=2)
    assert codes(done.value) == ["success", "System.GatherDispatchCancelled", "System.GatherDispatchSkipped"]
    assert [result["type"] for result in done.value] == ["success", "cancellation", "skipped"]


def test_a_dispatched_frame_cleans_up_when_the_gather_no_longer_needs_it() -> None:
    wrapped = subflow({"in": call(SLOW, middleware=[cleanup(mock())]), "done": returned()})
    done = gathered([mock(value=1), {"flow": wrapped}], {"successes": 1, "wait": False})
    assert codes(done.value) == ["success", "System.GatherDispatchCancelled"]
    assert len([key for key in done.keys("effect.call") if "onAlways" in key]) == 1


def test_a_cleanup_that_fails_in_a_cancelled_dispatch_is_that_dispatchs_result() -> None:
    wrapped = subflow({"in": call(SLOW), "done": returned()}, middleware=[cleanup(failing("Cleanup.Failed"))])
    done = gathered([mock(value=1), {"flow": wrapped}], {"successes": 1, "wait": False})
    assert codes(done.value) == ["success", "Cleanup.Failed"]
    assert done.value[1]["previous"]["code"] == "System.GatherDispatchCancelled"


def test_an_outcome_out_of_reach_cancels_the_rest_too() -> None:
    done = gathered([failing("My.Failure"), SLOW], {"successes": 2, "wait": False})
    evidence = done.value["failed"]["details"]
    assert codes([one["result"] for one in evidence["failures"]]) == ["My.Failure", "System.GatherDispatchCancelled"]
    assert evidence["failureCount"] == 2


def test_a_policy_that_is_met_before_anything_starts_skips_everything() -> None:
    done = gathered([SLOW, SLOW], {"successes": 0, "wait": False})
    assert codes(done.value) == ["System.GatherDispatchSkipped"] * 2
    assert done.keys("effect.call") == []


def test_no_arm_runs_for_a_dispatch_that_was_cancelled() -> None:
    marked = {**SLOW, "onFailure": {"assign": {"touched": True}}}
    done = gathered([mock(value=1), marked], {"successes": 1, "wait": False}, output="{{ has(vars.touched) }}")
    assert done.value is False


def test_a_timeout_around_a_gather_unwinds_all_of_its_dispatches() -> None:
    wrapped = subflow({"in": call(SLOW, middleware=[cleanup(mock())]), "done": returned()})
    fan = {"action": "Gather", "over": [1, 2, 3], "call": {"flow": wrapped}, "next": "done"}
    done = perform(flow({"fan": fan, "done": returned()}, middleware=[timeout("PT5S")]))
    assert done.chain == ["Provider.Middleware.Timeout.Exceeded"]
    assert len([key for key in done.keys("effect.call") if "onAlways" in key]) == 3
