"""Scorers, intervals and verdicts, without a server."""

from typing import Any

import pytest
from msgspec import UNSET

from callboard.bus.events import Event
from callboard.features.evaluation.report import Row, report_of
from callboard.features.evaluation.scorers import JudgedAnswer, Scorer, calls, contains, exact, fits, mean_of
from callboard.features.evaluation.verdicts import verdict_of
from callboard.projections.comparison.behaviour import Change, behaviour_of, compare_behaviour
from callboard.projections.comparison.json_differences import Difference
from tests.projections.comparison.test_behaviour import ONE, TWO, call, log


def answer(output: Any, expected: Any = UNSET) -> JudgedAnswer:
    return JudgedAnswer(None, output, expected, "completed")


@pytest.mark.parametrize(
    ("output", "expected", "score"),
    [
        ({"a": 1}, {"a": 1.0}, 1.0),
        ({"a": 1}, {"a": 2}, 0.0),
        (True, 1, 0.0),
        ({"a": 1}, UNSET, None),
    ],
)
def test_exact(output: Any, expected: Any, score: float | None) -> None:
    assert exact(answer(output, expected)) == score


@pytest.mark.parametrize(
    ("output", "expected", "score"),
    [
        ("It was paid.", "paid", 1.0),
        ({"text": "It was paid.", "n": 1}, {"text": "paid"}, 1.0),
        ({"text": "It was paid."}, "paid", 1.0),
        ({"text": "It was paid."}, {"n": 1}, 0.0),
        (["no", "yes"], "yes", 1.0),
        (7, "7", 0.0),
        ("text", UNSET, None),
    ],
)
def test_contains(output: Any, expected: Any, score: float | None) -> None:
    assert contains(answer(output, expected)) == score


def test_a_schema_scores_what_fits() -> None:
    score = fits({"type": "object", "required": ["a"]})
    assert (score(answer({"a": 1})), score(answer({}))) == (1.0, 0.0)


def test_a_function_gets_the_members_that_it_names_and_must_return_a_number_to_1() -> None:
    assert calls(lambda output, expected: output == expected)(answer(1, 1)) == 1.0
    assert calls(lambda output, expected: output == expected)(answer(1)) is None
    assert calls(lambda output, expected=None: expected is None)(answer(1)) == 1.0
    with pytest.raises(ValueError, match="from 0 to 1"):
        calls(lambda output: 7)(answer(1))


def test_an_interval_has_the_mean_within_it_and_is_the_same_again() -> None:
    scores = [1.0] * 70 + [0.0] * 30
    found = mean_of(scores)
    assert found is not None
    assert found == mean_of(scores)
    assert (found.mean, found.count) == (0.7, 100)
    assert 0.55 < found.low < 0.7 < found.high < 0.85
    assert mean_of([]) is None
    only = mean_of([1.0])
    assert only is not None
    assert (only.low, only.high) == (1.0, 1.0)


def test_a_scorer_that_raises_is_reported_for_the_case_and_others_count() -> None:
    def broken(_answer: JudgedAnswer) -> float:
        raise KeyError("text")

    rows = [Row("new", "a", "equal", output=1, expected=1), Row("new", "b", "failed", error={"code": "x"})]
    report = report_of("e", "d", 1, "completed", rows, [Scorer("broken", broken), Scorer("exact", exact)])
    assert report.problems == ["scorer broken, case a: KeyError: 'text'"]
    found = report.candidates["new"].scores["exact"].after
    assert found is not None
    assert found.mean == 1.0


def test_the_worst_cases_come_first() -> None:
    verdicts = ("identical", "changed", "failed", "equal", "regressed")
    rows = [Row("new", verdict, verdict) for verdict in verdicts]
    report = report_of("e", "d", 1, "completed", rows, [])
    assert [row.verdict for row in report.rows] == ["failed", "regressed", "changed", "equal", "identical"]


PAID_MORE = call("pay", {"amount": 499.99}, "a#1.1!2")


@pytest.mark.parametrize(
    ("left", "right", "expected", "verdict"),
    [
        (log(*ONE), log(*ONE), UNSET, "equal"),
        (log(*ONE, *TWO), log(*ONE, *PAID_MORE), UNSET, "regressed"),
        (log(*ONE, *TWO, end="right"), log(*ONE, *PAID_MORE, end="right"), "right", "regressed"),
        (log(end="It was paid."), log(end="We have paid."), UNSET, "changed"),
        (log(end=1), log(end=2), UNSET, "regressed"),
        (log(end=1), log(end=2), 2, "improved"),
        (log(end=2), log(end=2), 2, "equal"),
        (log(end=2), log(end=1), 2, "regressed"),
        (log(*ONE, status="failed"), log(*ONE, *TWO), UNSET, "improved"),
        (log(*ONE), log(*ONE, status="failed"), UNSET, "regressed"),
    ],
)
def test_a_verdict_follows_from_the_changes_and_the_expected_answer(
    left: list[Event], right: list[Event], expected: Any, verdict: str
) -> None:
    before, after = behaviour_of(left), behaviour_of(right)
    assert verdict_of(before, after, compare_behaviour(before, after), expected)[0] == verdict


def test_a_change_that_the_unchanged_definition_shows_too_is_noise() -> None:
    output = Change("output", "the output", 1, 2, [Difference("/a", 1, 2)])
    other = Change("output", "the output", 1, 9, [Difference("/a", 1, 9)])
    elsewhere = Change("output", "the output", 1, 9, [Difference("/b", 1, 9)])
    rows = [
        Row("baseline", "a", "equal", repeat=1),
        Row("baseline", "a", "regressed", repeat=2, changes=[output]),
        Row("new", "a", "regressed", repeat=1, changes=[other]),
        Row("new", "a", "regressed", repeat=2, changes=[elsewhere]),
        Row("new", "b", "regressed", changes=[other]),
    ]
    report = report_of("e", "d", 1, "completed", rows, [], "baseline")
    found = {(row.candidate, row.case, row.repeat): (row.verdict, row.noise) for row in report.rows}
    assert found == {
        ("baseline", "a", 1): ("equal", 0),
        ("baseline", "a", 2): ("noisy", 0),
        ("new", "a", 1): ("equal", 1),
        ("new", "a", 2): ("regressed", 0),
        ("new", "b", 1): ("regressed", 0),
    }
