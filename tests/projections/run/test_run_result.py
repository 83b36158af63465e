"""The results projection and the status words."""

from collections.abc import Callable

import pytest

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import (
    CancelRequested,
    ChildStart,
    EffectCall,
    EffectCancelled,
    HumanAsked,
    HumanClosed,
    RunEnd,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStart,
    SignalAwaited,
    TimerFired,
    TimerSet,
    ToolCall,
)
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from tests.support.event_logs import T0, Log, at, cake, everything


def test_the_result_of_a_finished_run() -> None:
    log = cake(retry=True)
    result = fold(Results(), log.events)
    assert (result.run, result.definition, result.language, result.status) == (log.run, "cake", "workflow", "completed")
    assert result.output == {"served": True}
    assert result.open == []
    assert (result.accepted_at, result.started_at) == (T0, at(2))
    assert result.ended_at == log.events[-1].time
    assert result.last_n == len(log.events)
    bake = result.nodes["bake"]
    assert (bake.iteration, bake.attempt, bake.outcome) == (2, 2, "ok")
    assert bake.result["data"] == {"visit": 2}


def test_usage_is_summed_in_total_by_node_and_by_model() -> None:
    result = fold(Results(), cake(retry=True).events)
    turn = Usage(100, 20, 30, 10)
    assert result.usage_by_path == {"bake": turn + turn + turn, "taste": turn + turn + turn + turn}
    assert result.usage_by_model == {"opus": result.usage}
    assert result.usage == Usage(700, 140, 210, 70)


def test_the_usage_of_child_runs_counts() -> None:
    result = fold(Results(), everything().events)
    assert result.usage == Usage(12, 14)
    assert result.usage_by_model == {"opus": Usage(5, 6)}
    assert result.usage_by_path["main"] == Usage(7, 8)


def test_an_active_run_lists_its_open_effects() -> None:
    log = Log().started()
    log.enter("bake")
    log.ask_model("bake")
    result = fold(Results(), log.events)
    assert [(effect.type, effect.key, effect.n) for effect in result.open] == [("model.call", "bake#1.1!turn.0", 6)]
    assert result.nodes["bake"].outcome is None


def test_a_failed_run_keeps_its_error_even_before_the_end() -> None:
    log = Log().started().failed("limits.steps", "too many")
    assert fold(Results(), log.events[:-1]).error == Failure("limits.steps", "too many")
    result = fold(Results(), log.events)
    assert result.status == "failed"
    assert result.error == Failure("limits.steps", "too many")


def test_overlapping_iterations_show_the_one_entered_last() -> None:
    log = Log().started()
    log.enter("a", 1)
    log.enter("a", 2)
    log.exit("a", 1, "failed")
    assert fold(Results(), log.events).nodes["a"].outcome is None
    log.exit("a", 2)
    state = fold(Results(), log.events).nodes["a"]
    assert (state.iteration, state.outcome, state.error) == (2, "ok", None)


def _status(log: Log) -> str:
    return fold(Results(), log.events).status


def test_the_status_from_admission_to_running() -> None:
    log = Log()
    log.accepted()
    assert _status(log) == "accepted"
    log.claimed()
    assert _status(log) == "accepted"
    log.add(RunStart("cake"))
    assert _status(log) == "running"


WAITS: list[tuple[str, Callable[[Log], object]]] = [
    ("waiting:human", lambda log: log.add(HumanAsked("?"), "a", 1, 1, "ask")),
    ("waiting:tool", lambda log: log.add(ToolCall("a", "t", via="caller"), "a", 1, 1, "tool.0.0")),
    ("running", lambda log: log.add(ToolCall("a", "t"), "a", 1, 1, "tool.0.0")),
    ("waiting:signal", lambda log: log.add(SignalAwaited("go"), "a", 1, 1, "sig")),
    ("waiting:child", lambda log: log.add(ChildStart({}, "c"), "a", 1, 1, "child")),
    ("waiting:timer", lambda log: log.add(TimerSet(T0, "delay"), "a", 1, 1, "t")),
    ("waiting:timer", lambda log: log.add(TimerSet(T0, "wait"), "a", 1, 1, "t")),
    ("waiting:timer", lambda log: log.add(TimerSet(T0, "sleep"), "a", 1, 1, "t")),
    ("running", lambda log: log.add(TimerSet(T0, "retry"), "a", 1, 1, "t")),
    ("running", lambda log: log.add(TimerSet(T0, "expiry"), "a", 1, 1, "t")),
    ("running", lambda log: log.add(EffectCall("http"), "a", 1, 1, "c")),
    ("paused", lambda log: log.add(RunPaused("breakpoint"), "a", 1, 1, "gate")),
    ("cancelling", lambda log: log.add(CancelRequested())),
    ("failed", lambda log: log.add(RunFailed(Failure("x")))),
    ("expired", lambda log: log.add(RunEnd("expired"))),
]


@pytest.mark.parametrize(("status", "happens"), WAITS)
def test_the_status_depends_on_open_effects(status: str, happens: Callable[[Log], object]) -> None:
    log = Log().started()
    happens(log)
    assert _status(log) == status


def test_a_question_takes_precedence_over_work_and_work_over_other_waits() -> None:
    log = Log().started()
    log.add(TimerSet(T0, "wait"), "a", 1, 1, "nap")
    log.add(SignalAwaited("go"), "b", 1, 1, "sig")
    assert _status(log) == "waiting:signal"
    log.ask_model("c")
    assert _status(log) == "running"
    log.add(HumanAsked("?"), "d", 1, 1, "ask")
    assert _status(log) == "waiting:human"
    log.add(HumanClosed("timeout"), "d", 1, 1, "ask")
    log.add(EffectCancelled("model.call", Failure("c")), "c", 1, 1, "turn.0")
    log.add(EffectCancelled("signal.awaited", Failure("c")), "b", 1, 1, "sig")
    assert _status(log) == "waiting:timer"
    log.add(TimerFired(T0), "a", 1, 1, "nap")
    assert _status(log) == "running"


def test_a_resume_opens_its_own_gate_only() -> None:
    log = Log().started()
    log.add(RunPaused("breakpoint"), "a", 1, 1, "gate")
    log.add(RunPaused("command"))
    log.add(RunResumed())
    assert _status(log) == "paused"
    log.add(RunResumed(), "a", 1, 1, "gate")
    assert _status(log) == "running"
