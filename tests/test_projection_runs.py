"""The listing of runs."""

import pytest

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import CancelRequested, RunEnd, RunParked, RunPaused, RunResumed
from callboard.projections.projection import fold
from callboard.projections.runs import RunRow, Runs, Wanted
from tests.logs import T0, Log, at, cake, everything


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


def test_the_rows_need_the_events_of_the_run_only() -> None:
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


def test_a_run_that_was_parked_without_saying_for_what_waits() -> None:
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


def test_the_newest_runs_are_kept_and_an_old_one_does_not_come_back() -> None:
    runs = Runs(newest_max=2)
    logs = [Log(f"r{number}").started() for number in range(4)]
    for log in logs:
        for event in log.events:
            runs.apply(event)
    for event in logs[0].ended().events[-1:]:
        runs.apply(event)
    assert [row.run for row in runs.view()] == ["r3", "r2"]
    assert runs.row("r0") is None
    newest = runs.row("r3")
    assert newest is not None
    assert newest.status == "running"


def several() -> Runs:
    """Nine runs: every third one has failed, every second one is of another definition, the last one goes on."""
    runs = Runs()
    for number in range(9):
        log = Log(f"Run-{number}", "cake" if number % 2 else "bread")
        log.wait(36_000 * number)
        log.started()
        if number < 8:
            log.failed("tool.failed") if number % 3 == 0 else log.add(RunEnd("completed", usage=Usage(20, 3)))
        for event in log.events:
            runs.apply(event)
    return runs


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), [8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (Wanted(frozenset({"failed"})), [6, 3, 0]),
        (Wanted(frozenset({"running", "failed"})), [8, 6, 3, 0]),
        (Wanted(frozenset({"paused"})), []),
        (Wanted(definition="cake"), [7, 5, 3, 1]),
        (Wanted(frozenset({"failed"}), "bread"), [6, 0]),
        (Wanted(definition="none"), []),
        (Wanted(since=at(36_000 * 7)), [8, 7]),
        (Wanted(text="run-4"), [4]),
        (Wanted(text="tool."), [6, 3, 0]),
        (Wanted(before="Run-3"), [2, 1, 0]),
        (Wanted(frozenset({"completed"}), "cake", before="Run-5"), [1]),
    ],
)
def test_rows_are_selected(wanted: Wanted, expected: list[int]) -> None:
    assert [int(row.run[-1]) for row in several().select(wanted)] == expected


def test_behind_a_run_that_is_not_listed_there_is_nothing_to_tell() -> None:
    with pytest.raises(KeyError):
        several().select(Wanted(before="nix"))


def test_an_end_tells_duration_and_tokens() -> None:
    row = several().row("Run-1")
    assert row is not None
    assert row.ended_at is not None
    assert row.started_at is not None
    assert (row.tokens, row.duration_s) == (23, (row.ended_at - row.started_at).total_seconds())


def test_a_selection_is_the_same_whatever_has_gone_before() -> None:
    """Indexes agree with the rows, also where old runs have gone and one has begun anew."""
    runs = Runs(newest_max=4)
    for number in (0, 1, 2, 3, 4, 2, 5, 6):
        log = Log(f"r{number}", f"d{number % 2}").started()
        for event in (log.ended() if number % 3 else log).events:
            runs.apply(event)
    rows = runs.view()
    assert [row.run for row in rows] == ["r6", "r5", "r2", "r4"]
    for wanted in (Wanted(), Wanted(frozenset({"completed"})), Wanted(definition="d1"), Wanted(frozenset({"running"}))):
        assert list(runs.select(wanted)) == [row for row in rows if wanted.takes(row)]
