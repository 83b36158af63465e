"""The listing of runs."""

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import CancelRequested, RunEnd, RunParked, RunPaused, RunResumed
from callboard.projections.lists.runs import RunRow, Runs
from callboard.projections.projection import fold
from tests.support.event_logs import T0, Log, at, cake, everything


def _row(log: Log) -> RunRow:
    (row,) = fold(Runs(), log.events)
    return row


def test_a_row_of_a_finished_run() -> None:
    log = cake()
    assert _row(log) == RunRow(
        run=log.run,
        definition="cake",
        definition_hash="ab" * 32,
        language="workflow",
        status="completed",
        accepted_at=T0,
        started_at=at(2),
        ended_at=log.events[-1].time,
        claims=1,
        worker="w1",
        duration_s=(log.events[-1].time - at(2)).total_seconds(),
    )


def test_the_rows_need_only_events_of_the_run_type() -> None:
    log = everything()
    selected = [event for event in log.events if event.type.startswith("run.")]
    assert fold(Runs(), selected) == fold(Runs(), log.events)


def test_the_status_of_a_row() -> None:
    log = Log()
    log.accepted()
    seen = [_row(log).status]
    parked = RunParked(["a#1.1!ask"], at(9), status="waiting:human")
    for payload in (parked, RunPaused("command"), RunResumed(), CancelRequested()):
        log.add(payload)
        seen.append(_row(log).status)
    assert seen == ["accepted", "waiting:human", "paused", "waiting:human", "cancelling"]
    assert (_row(log).awaits, _row(log).deadline) == (["a#1.1!ask"], at(9))


def test_a_run_that_was_parked_without_a_status_is_waiting() -> None:
    log = Log().started()
    log.add(RunParked(["a#1.1!ask"]))
    assert _row(log).status == "waiting"


def test_a_claim_ends_the_wait() -> None:
    log = Log().started()
    log.add(RunParked(["a#1.1!ask"], at(9)))
    log.claimed("w2")
    row = _row(log)
    assert (row.status, row.worker, row.claims, row.awaits, row.deadline) == ("running", "w2", 2, [], None)


def test_a_failed_run_names_its_error_code() -> None:
    assert _row(Log().started().failed("limits.steps")).error == "limits.steps"
    cancelled = Log().started()
    cancelled.add(RunEnd("cancelled", error=Failure("cancelled")))
    assert (_row(cancelled).status, _row(cancelled).error) == ("cancelled", "cancelled")


def test_a_run_that_has_ended_has_duration_and_tokens() -> None:
    log = Log().started()
    log.add(RunEnd("completed", usage=Usage(20, 3)))
    row = _row(log)
    assert row.ended_at is not None
    assert row.started_at is not None
    assert (row.tokens, row.duration_s) == (23, (row.ended_at - row.started_at).total_seconds())


def test_a_run_that_starts_again_is_listed_once_as_the_newest() -> None:
    logs = [Log(f"r{number}").started() for number in range(3)]
    events = [event for log in (*logs, logs[0]) for event in log.events]
    assert [row.run for row in fold(Runs(), events)] == ["r0", "r2", "r1"]
