"""When schedules are due: cron in a time zone, over changes of the clocks; equal distances; what has passed."""

import datetime as dt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.features.schedules.timetable import Timetable, problems

NINE = Timetable("0 9 * * *", "Europe/Berlin")
HOURLY = Timetable("0 * * * *")


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def dues(timetable: Timetable, moment: str, count: int) -> list[dt.datetime]:
    found = [utc(moment)]
    while len(found) <= count:
        found.append(timetable.after(found[-1]))
    return found[1:]


def test_nine_is_nine_in_summer_and_winter() -> None:
    assert dues(NINE, "2026-03-28T00:00", 2) == [utc("2026-03-28T08:00"), utc("2026-03-29T07:00")]
    assert dues(NINE, "2026-10-24T00:00", 2) == [utc("2026-10-24T07:00"), utc("2026-10-25T08:00")]


def test_what_the_clocks_skip_is_due_behind_it_and_what_they_repeat_once() -> None:
    night = Timetable("30 2 * * *", "Europe/Berlin")
    assert dues(night, "2026-03-28T12:00", 2) == [utc("2026-03-29T01:00"), utc("2026-03-30T00:30")]
    assert dues(night, "2026-10-24T12:00", 2) == [utc("2026-10-25T00:30"), utc("2026-10-26T01:30")]


def test_equal_distances_do_not_depend_on_who_looks_when() -> None:
    table = Timetable(every_s=90.0)
    assert dues(table, "2026-01-01T00:00:10", 2) == [utc("2026-01-01T00:01:30"), utc("2026-01-01T00:03:00")]
    assert table.after(utc("2026-01-01T00:01:30")) == utc("2026-01-01T00:03:00")


@pytest.mark.parametrize("table", [HOURLY, Timetable(every_s=3_600.0)])
def test_of_what_has_passed_the_latest_are_returned(table: Timetable) -> None:
    first, until = utc("2026-01-01T09:00"), utc("2026-01-01T12:30")
    hours = [utc(f"2026-01-01T{hour:02}:00") for hour in range(9, 13)]
    assert [table.passed_times(first, until, count) for count in (1, 2, 4, 9)] == [hours[-1:], hours[-2:], hours, hours]
    assert table.passed_times(first, hours[-1], 9) == hours
    assert table.passed_times(first, first, 9) == [first]


def test_a_year_of_minutes_is_not_counted_through() -> None:
    minutes = Timetable("* * * * *").passed_times(utc("2025-01-01T00:00"), utc("2026-01-01T00:00"), 3)
    assert minutes == [utc("2025-12-31T23:58"), utc("2025-12-31T23:59"), utc("2026-01-01T00:00")]


@given(st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1)), st.integers(1, 12))
def test_what_has_passed_is_what_was_due(moment: dt.datetime, count: int) -> None:
    table = Timetable("*/20 1-4 * * *", "Europe/Berlin")
    first = table.after(moment.replace(tzinfo=dt.UTC))
    due = [first]
    while len(due) < count:
        due.append(table.after(due[-1]))
    assert table.passed_times(first, due[-1], count) == due


def test_each_due_time_is_put_off_by_as_much_each_time() -> None:
    table = Timetable(every_s=60.0, jitter_s=30.0)
    offs = [(table.put_off(due, "a") - due).total_seconds() for due in dues(table, "2026-01-01T00:00", 50)]
    assert offs == [(table.put_off(due, "a") - due).total_seconds() for due in dues(table, "2026-01-01T00:00", 50)]
    assert min(offs) >= 0
    assert max(offs) < 30
    assert len(set(offs)) == 50


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (Timetable(), "schedule.when"),
        (Timetable("0 9 * * *", every_s=60.0), "schedule.when"),
        (Timetable("61 * * * *"), "schedule.cron"),
        (Timetable("0 0 31 2 *"), "schedule.cron"),
        (Timetable("tomorrow"), "schedule.cron"),
        (Timetable("0 9 * * *", "Europe/Belin"), "schedule.timezone"),
        (Timetable("0 9 * * *", "../etc/passwd"), "schedule.timezone"),
        (Timetable(every_s=0.1), "schedule.every"),
        (Timetable(every_s=float("nan")), "schedule.every"),
        (Timetable(every_s=60.0, jitter_s=-1.0), "schedule.jitter"),
    ],
)
def test_times_that_cannot_be_kept(table: Timetable, code: str) -> None:
    assert [one.code for one in problems(table)] == [code]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    wrong = Timetable("61 * * * *", "Nowhere", every_s=0.1, jitter_s=-1.0)
    found = {one.code.removeprefix("schedule.") for one in problems(wrong)}
    assert found == {"when", "every", "jitter", "timezone", "cron"}


@example(dt.datetime(2021, 10, 30, 3, 0), 7)
@given(st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1)), st.integers(1, 40))
def test_of_more_than_are_wanted_the_latest_have_passed(moment: dt.datetime, count: int) -> None:
    table = Timetable("*/20 1-4 * * *", "Europe/Berlin")
    due = [table.after(moment.replace(tzinfo=dt.UTC))]
    while len(due) < 40:
        due.append(table.after(due[-1]))
    assert table.passed_times(due[0], due[-1], count) == due[-count:]
