"""Warnings of failed dispatches that a Gather's policy tolerates."""

from typing import Any

from callboard.bus import events as ev
from callboard.languages.flow.gather import CODES_TOLD_MAX, INDICES_TOLD_MAX, describe_tolerated
from callboard.projections.lists.runs import Runs
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from tests.support.flows import Performance, flow, mock, perform, returned

ODD_FAIL = mock(failure="{{ int(call.index) % 2 == 1 ? {'code': 'Odd'} : null }}")
SLOW_LATER = mock(delay="{{ call.index == 0.0 ? 'PT0S' : 'PT1H' }}")


def run_gather(target: dict[str, Any], **completion: Any) -> Performance:
    gather = {"action": "Gather", "over": [1, 2, 3, 4], "call": target, "next": "r", "completion": completion}
    return perform(flow({"g": gather, "r": returned()}))


def warnings(done: Performance) -> list[tuple[str, str]]:
    found = [ev.payload_of(event) for event in done.events if event.type == "node.warning"]
    return [(one.code, one.reason) for one in found if isinstance(one, ev.NodeWarning)]


def test_a_tolerated_failure_is_a_warning_of_the_run() -> None:
    done = run_gather(ODD_FAIL, successes=2)
    reason = "2 of 4 dispatches failed: [1, 3] Odd"
    assert warnings(done) == [("flow.dispatches_failed", reason)]
    assert done.result["type"] == "success"
    [warned] = fold(Results(), done.events).warnings
    assert (warned.code, warned.reason, warned.path) == ("flow.dispatches_failed", reason, "main/g")
    assert fold(Runs(), done.events)[0].warnings == ["flow.dispatches_failed"]


def test_skipped_dispatches_and_an_unmet_policy_are_not_warnings() -> None:
    assert warnings(run_gather(SLOW_LATER, successes=1, wait=False)) == []
    assert warnings(run_gather(mock(), successes=4)) == []
    unmet = run_gather(ODD_FAIL, successes=3)
    assert (warnings(unmet), unmet.chain[0]) == ([], "System.GatherCompletionUnmet")


def test_many_failures_are_summarised_in_one_line() -> None:
    failed = [{"type": "error", "code": f"Code{index // 20}"} for index in range(20 * (CODES_TOLD_MAX + 1))]
    summary = describe_tolerated(failed)
    first = ", ".join(map(str, range(INDICES_TOLD_MAX)))
    assert summary.startswith(f"{len(failed)} of {len(failed)} dispatches failed: [{first}, …] Code0, [20, ")
    assert summary.endswith("Code4, and more")
