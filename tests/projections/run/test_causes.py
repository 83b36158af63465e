"""The causes of the failure of a run: the failures that led to it with their places, and those caught before."""

from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.projections.projection import fold
from callboard.projections.run.causes import DISPATCHES_MAX, FAILURES_MAX, Cause, Causes, brief
from callboard.projections.run.run_result import Results
from callboard.projections.trace.trace import TraceFold
from callboard.service.operations.narration import narrate
from callboard.surfaces.cli.tree_text import tree_text
from callboard.surfaces.cli.views import CAUSES_SHOWN_MAX, cause_lines
from tests.support.event_logs import known_payload
from tests.support.flows import call, caught, failing, flow, mock, perform, retry, returned, subflow


def causes_of(definition: dict[str, Any], input: Any = None) -> list[str]:
    """Run a flow and return the lines of its causes."""
    return cause_lines(fold(Results(), perform(definition, input).events).cause)


DEALERS = subflow(
    {
        "which": {
            "action": "Match",
            "cases": [{"when": "{{ step.input > 1.0 }}", "next": "busy"}],
            "default": {"next": "shut"},
        },
        "busy": call(failing("Dealer.Busy", message="call again")),
        "shut": call(failing("Dealer.Shut", message="gone home")),
        "done": returned(),
    }
)


def fan_out(**fields: Any) -> dict[str, Any]:
    """A step that fails and is caught, and then a Gather all of whose dispatches fail."""
    return flow(
        {
            "look": call(failing("Stock.Unknown", message="never heard of it"), "fan", catch=[caught("fan")]),
            "fan": {"action": "Gather", "over": [1, 2, 3], "call": {"flow": "dealer"}, "next": "done", **fields},
            "done": returned(),
        },
        flows={"dealer": DEALERS},
    )


def test_the_causes_of_a_gather_are_its_dispatches() -> None:
    assert causes_of(fan_out()) == [
        "System.GatherCompletionUnmet: 0 of 3 dispatches succeeded, 3 had to  (at main/fan)",
        "  [0]: Dealer.Shut: gone home  (at main/fan[0]/shut)",
        "  [1], [2]: Dealer.Busy: call again  (at main/fan[2]/busy)",
        "earlier, caught at main/look: Stock.Unknown: never heard of it",
    ]


def test_every_view_of_a_failed_gather_names_a_failed_dispatch() -> None:
    events = perform(fan_out()).events
    words = "0 of 3 dispatches succeeded, 3 had to; [0]"
    lines = [narrate(event, known_payload(event)) for event in events]
    assert f"✗ fan failed: System.GatherCompletionUnmet {words}: Dealer.Shut gone home" in lines
    assert lines[-2] == f"✗ failed: System.GatherCompletionUnmet {words}: Dealer.Shut gone home"
    tree = tree_text(fold(TraceFold(), events))
    assert f"System.GatherCompletionUnmet: {words} Dealer.Shut: gone home" in tree


def test_cancelled_and_skipped_dispatches_are_listed_last() -> None:
    definition = flow(
        {
            "fan": {
                "action": "Gather",
                "calls": [mock(delay="PT1H"), failing("Dealer.Shut"), mock(delay="PT1H")],
                "concurrency": 2,
                "completion": {"successes": 3, "wait": False},
                "next": "done",
            },
            "done": returned(),
        }
    )
    assert [line.strip().partition(":")[2].split()[0] for line in causes_of(definition)[1:]] == [
        "Dealer.Shut",
        "System.GatherDispatchCancelled",
        "System.GatherDispatchSkipped",
    ]


def test_the_last_failure_of_a_retry_is_a_cause() -> None:
    steps = {"ask": call({"flow": "dealer"}, middleware=[retry(2)], input=1), "done": returned()}
    assert causes_of(flow(steps, flows={"dealer": DEALERS}))[1:] == [
        "after Dealer.Shut: gone home  (at main/ask:call/shut)"
    ]


def test_a_handler_that_fails_names_the_step_whose_failure_it_handles() -> None:
    steps = {
        "ask": call({"flow": "dealer"}, input=1, catch=[caught("sorry")]),
        "sorry": {"action": "Raise", "result": {"code": "Shop.Sorry"}},
        "done": returned(),
    }
    assert causes_of(flow(steps, flows={"dealer": DEALERS})) == [
        "Shop.Sorry  (at main/sorry)",
        "earlier, caught at main/ask: Dealer.Shut: gone home  (at main/ask:call/shut)",
    ]


def test_a_failure_that_is_raised_again_was_not_caught() -> None:
    steps = {
        "ask": call(failing("Dealer.Shut"), catch=[caught("again")]),
        "again": {"action": "Raise"},
        "done": returned(),
    }
    assert causes_of(flow(steps)) == ["Dealer.Shut  (at main/ask)"]


def test_a_gather_within_a_dispatch_has_its_own_causes() -> None:
    inner = subflow({"fan": {"action": "Gather", "calls": [failing("Deep.Down")], "next": "done"}, "done": returned()})
    steps = {"out": {"action": "Gather", "calls": [{"flow": "inner"}], "next": "done"}, "done": returned()}
    assert [line.rpartition("(at ")[2] for line in causes_of(flow(steps, flows={"inner": inner}))] == [
        "main/out)",
        "main/out[0]/fan)",
        "main/out[0]/fan[0])",
    ]


def test_the_first_failures_are_listed_and_the_rest_counted() -> None:
    calls = [failing(f"Dealer.{name}") for name in "ABCDEF"]
    lines = causes_of(flow({"fan": {"action": "Gather", "calls": calls, "next": "done"}, "done": returned()}))
    assert len(lines) == 2 + DISPATCHES_MAX
    assert lines[-1] == f"  … and {len(calls) - DISPATCHES_MAX} more"
    alike = flow({"fan": {"action": "Gather", "calls": [failing("A.B")] * 9, "next": "done"}, "done": returned()})
    assert causes_of(alike)[1] == "  [0], [1], [2], [3], [4] and 4 more: A.B  (at main/fan[0])"


def test_a_long_chain_is_cut() -> None:
    error = Failure("A.0")
    for depth in range(1, 40):
        error = Failure(f"A.{depth}", previous=error)
    lines = cause_lines(Causes().of(error))
    assert (len(lines), lines[0], lines[-1]) == (CAUSES_SHOWN_MAX, "A.39", "…")


@pytest.mark.parametrize(
    "details", [None, 3, {"failures": 3}, {"failures": [3, {"index": "x"}, {"index": 0, "result": 1}]}]
)
def test_malformed_details_are_ignored(details: Any) -> None:
    error = Failure("System.GatherCompletionUnmet", "0 of 1", details=details)
    assert Causes().of(error) == Cause(code=error.code, message="0 of 1")
    assert brief(error) == "System.GatherCompletionUnmet: 0 of 1"


def test_the_number_of_remembered_places_is_bounded() -> None:
    causes = Causes()
    events = perform(flow({"ask": call(failing("A.B")), "done": returned()})).events
    left = next(event for event in events if event.type == ev.NodeExit.type)
    for number in range(FAILURES_MAX + 1):
        causes.apply(left, ev.NodeExit("failed", error=Failure(f"A.{number}")))
    assert [causes.of(Failure(f"A.{number}")).place for number in (0, 1)] == ["", left.path]
