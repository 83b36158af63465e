"""Failed steps: the failure that ended a run, and the steps that failed and were caught, each counted once."""

from collections.abc import Sequence
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.events import Event
from callboard.projections.projection import fold
from callboard.projections.run.failures import FailedSteps, RunFailures
from callboard.projections.run.run_result import Results
from callboard.surfaces.cli.views import failed_steps_text
from tests.support.event_logs import Log, at
from tests.support.flows import call, caught, failing, flow, mock, perform, retry, returned, subflow

BUSY = Failure("step.failed", "step fetch raised TimeoutError: busy")


def failures(events: Sequence[Event]) -> RunFailures:
    return fold(Results(), events).failures or RunFailures()


def steps_of(events: Sequence[Event]) -> FailedSteps:
    return failures(events).steps or FailedSteps(0, "", 0)


def place(events: Sequence[Event], n: int) -> tuple[str, str]:
    """The type and the path of an event."""
    event = next(event for event in events if event.n == n)
    return event.type, event.path


def add_tries(log: Log, path: str, *errors: Failure | None, iteration: int = 1) -> None:
    """Add the events of a step in Python, with an error or None for each try."""
    for k, error in enumerate(errors, 1):
        slot = "step" if k == 1 else f"step.{k}"
        if k > 1:
            log.add(ev.TimerSet(at(0), "retry"), path, iteration, 1, f"backoff.{k - 1}")
            log.add(ev.TimerFired(at(0)), path, iteration, 1, f"backoff.{k - 1}")
        log.add(ev.EffectCall("step", path, {"step": path, "arguments": {}}), path, iteration, 1, slot)
        log.add(ev.EffectResult(None if error else 1, error), path, iteration, 1, slot)


def start_log() -> Log:
    return Log().started(language="python")


def raise_error(log: Log, error: Failure) -> list[Event]:
    """End a run by an exception that a step or a child run raised in it."""
    whole = Failure(error.code, f"StepFailed: {error.message} (play.py:9 play)", previous=error)
    log.add(ev.RunFailed(whole))
    log.add(ev.RunEnd("failed", error=whole))
    return log.events


def test_the_step_that_raised_has_ended_the_run() -> None:
    log = start_log()
    add_tries(log, "fetch", BUSY, None)
    refused = Failure("step.failed", "step save raised PermissionError: disk is read-only")
    add_tries(log, "save", refused)
    n = log.events[-1].n
    assert failures(raise_error(log, refused)) == RunFailures(n, FailedSteps(1, "save", n))


def test_the_last_of_equal_failures_has_ended_a_run() -> None:
    log = start_log()
    add_tries(log, "fetch", BUSY)
    add_tries(log, "fetch", BUSY, BUSY, iteration=2)
    n = log.events[-1].n
    assert failures(raise_error(log, BUSY)) == RunFailures(n, FailedSteps(2, "fetch", 6))


def test_an_exception_of_the_workflow_has_ended_the_run() -> None:
    log = start_log()
    add_tries(log, "fetch", BUSY)
    log.failed("python.failed", "ValueError: nothing to do")
    n = next(event.n for event in log.events if event.type == "run.failed")
    assert failures(log.events) == RunFailures(n, FailedSteps(1, "fetch", 6))


def test_caught_steps_and_child_runs_are_counted_once_each() -> None:
    log = start_log()
    add_tries(log, "fetch", BUSY, BUSY)
    add_tries(log, "parse", None)
    log.add(ev.ChildStart({"name": "other"}, "child-1"), "child", 1, 1, "child")
    log.add(ev.ChildEnd("failed", error=BUSY), "child", 1, 1, "child")
    log.add(ev.ChildStart({"name": "other"}, "child-2"), "child", 2, 1, "child")
    log.add(ev.ChildEnd("cancelled"), "child", 2, 1, "child")
    # The failure of a tool is returned to the model and does not count.
    log.tool("agent", slot="tool.1.0", error=Failure("tool.failed", "no such page"))
    add_tries(log, "tool in a process", None)
    result = fold(Results(), log.ended("done").events)
    assert result.failures == RunFailures(0, FailedSteps(2, "fetch", 10))
    assert failed_steps_text(result) == "2 failed and were caught, first fetch (event 10)"


@pytest.mark.parametrize(("attempts", "count"), [(3, 0), (2, 1)])
def test_a_retried_step_of_a_flow_counts_by_its_last_attempt(attempts: int, count: int) -> None:
    steps = {
        "look": call(
            mock(value=1, failure="{{ vars.failed < 2.0 ? {'code': 'Dealer.Busy'} : null }}"),
            middleware=[retry(attempts, onFailure={"assign": {"failed": "{{ vars.failed + 1.0 }}"}})],
            catch=[caught("done")],
        ),
        "done": returned(),
    }
    parameters: Any = {"type": "object", "properties": {"failed": {"type": "number", "default": 0}}}
    events = perform(flow(steps, parameters=parameters)).events
    assert failures(events).ended_at == 0
    assert steps_of(events).count == count
    if count:
        assert place(events, steps_of(events).n) == ("effect.result", "main/look:call")


def test_the_last_failed_call_has_ended_a_flow() -> None:
    steps = {
        "look": call(failing("Stock.Unknown"), "buy", catch=[caught("buy")]),
        "buy": call(failing("Disk.ReadOnly"), middleware=[retry(2)]),
        "done": returned(),
    }
    events = perform(flow(steps)).events
    ended_at = failures(events).ended_at
    assert place(events, ended_at) == ("effect.result", "main/buy:call")
    assert ended_at == max(event.n for event in events if event.type == "effect.result")
    assert (steps_of(events).count, steps_of(events).path) == (2, "main/look")


def test_equal_failures_of_dispatches_are_counted_for_each() -> None:
    gather = {"action": "Gather", "over": [1, 2, 3], "call": {"flow": "dealer"}, "next": "done"}
    dealer = subflow({"ask": call(failing("Dealer.Busy")), "done": returned()})
    steps = {"fan": {**gather, "catch": [caught("done")]}, "done": returned()}
    events = perform(flow(steps, flows={"dealer": dealer})).events
    # The Gather itself has failed because of them.
    assert (steps_of(events).count, steps_of(events).path) == (3, "main/fan[0]/ask")
    assert failures(events).ended_at == 0
    steps = {"fan": gather, "done": returned()}
    events = perform(flow(steps, flows={"dealer": dealer})).events
    kind, path = place(events, failures(events).ended_at)
    assert kind == "effect.result"
    assert path in [f"main/fan[{index}]/ask:call" for index in range(3)]


def test_the_failure_of_a_node_is_that_of_the_effect_that_ended_last_in_it() -> None:
    log = Log().started()
    log.enter("fetch")
    log.tool("fetch", slot="tool.1.0", error=Failure("tool.failed", "connection refused"))
    log.tool("fetch", slot="tool.2.0")
    error = Failure("output.misfit", "the answer does not fit")
    log.add(ev.NodeExit("failed", None, error), "fetch", 1, 1)
    exited = log.events[-1].n
    assert steps_of(log.failed().events) == FailedSteps(1, "fetch", exited)
