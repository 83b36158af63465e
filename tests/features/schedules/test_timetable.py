"""Due times of schedules: cron in a time zone across changes of the clock, equal intervals, and passed times."""

import datetime as dt
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callboard.features.schedules.timetable import (
    EPOCH,
    Timetable,
    due_after,
    due_between,
    moment_of,
    number_at,
    offset_change,
    problems,
)

NINE = Timetable("0 9 * * *", "Europe/Berlin")
HOURLY = Timetable("0 * * * *")


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def dues(timetable: Timetable, moment: str, count: int) -> list[dt.datetime]:
    found = [utc(moment)]
    while len(found) <= count:
        found.append(timetable.after(found[-1]))
    return found[1:]


def test_a_due_time_keeps_its_local_hour_in_summer_and_winter() -> None:
    assert dues(NINE, "2026-03-28T00:00", 2) == [utc("2026-03-28T08:00"), utc("2026-03-29T07:00")]
    assert dues(NINE, "2026-10-24T00:00", 2) == [utc("2026-10-24T07:00"), utc("2026-10-25T08:00")]


def test_a_skipped_time_is_due_after_the_gap_and_a_repeated_one_once() -> None:
    night = Timetable("30 2 * * *", "Europe/Berlin")
    assert dues(night, "2026-03-28T12:00", 2) == [utc("2026-03-29T01:00"), utc("2026-03-30T00:30")]
    assert dues(night, "2026-10-24T12:00", 2) == [utc("2026-10-25T00:30"), utc("2026-10-26T01:30")]


def test_equal_intervals_do_not_depend_on_the_moment_of_the_query() -> None:
    table = Timetable(every_s=90.0)
    assert dues(table, "2026-01-01T00:00:10", 2) == [utc("2026-01-01T00:01:30"), utc("2026-01-01T00:03:00")]
    assert table.after(utc("2026-01-01T00:01:30")) == utc("2026-01-01T00:03:00")


@pytest.mark.parametrize("table", [HOURLY, Timetable(every_s=3_600.0)])
def test_the_latest_passed_times_are_returned(table: Timetable) -> None:
    first, until = utc("2026-01-01T09:00"), utc("2026-01-01T12:30")
    hours = [utc(f"2026-01-01T{hour:02}:00") for hour in range(9, 13)]
    assert [table.passed_times(first, until, count) for count in (1, 2, 4, 9)] == [hours[-1:], hours[-2:], hours, hours]
    assert table.passed_times(first, hours[-1], 9) == hours
    assert table.passed_times(first, first, 9) == [first]


def test_the_latest_minutes_of_a_year_are_found() -> None:
    minutes = Timetable("* * * * *").passed_times(utc("2025-01-01T00:00"), utc("2026-01-01T00:00"), 3)
    assert minutes == [utc("2025-12-31T23:58"), utc("2025-12-31T23:59"), utc("2026-01-01T00:00")]


@given(st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1)), st.integers(1, 12))
def test_passed_times_equal_the_due_times(moment: dt.datetime, count: int) -> None:
    table = Timetable("*/20 1-4 * * *", "Europe/Berlin")
    first = table.after(moment.replace(tzinfo=dt.UTC))
    due = [first]
    while len(due) < count:
        due.append(table.after(due[-1]))
    assert table.passed_times(first, due[-1], count) == due


def test_the_jitter_of_a_due_time_is_constant() -> None:
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
def test_an_invalid_timetable_is_refused(table: Timetable, code: str) -> None:
    assert [one.code for one in problems(table)] == [code]


def test_all_problems_of_a_timetable_are_reported_together() -> None:
    wrong = Timetable("61 * * * *", "Nowhere", every_s=0.1, jitter_s=-1.0)
    found = {one.code.removeprefix("schedule.") for one in problems(wrong)}
    assert found == {"when", "every", "jitter", "timezone", "cron"}


@example(dt.datetime(2021, 10, 30, 3, 0), 7)
@given(st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2030, 1, 1)), st.integers(1, 40))
def test_passed_times_are_limited_to_the_latest(moment: dt.datetime, count: int) -> None:
    table = Timetable("*/20 1-4 * * *", "Europe/Berlin")
    due = [table.after(moment.replace(tzinfo=dt.UTC))]
    while len(due) < 40:
        due.append(table.after(due[-1]))
    assert table.passed_times(due[0], due[-1], count) == due[-count:]


BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = dt.timedelta(minutes=1)
CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00"],
    # By half an hour, at midnight, and by a whole day.
    "Australia/Lord_Howe": ["2026-04-04T15:00", "2026-10-03T15:30"],
    "America/Sao_Paulo": ["2018-11-04T03:00", "2018-02-18T02:00"],
    "Pacific/Apia": ["2011-12-30T10:00"],
    "UTC": ["2026-01-01T00:00"],
}
"""When clocks are changed, in UTC."""

distances = st.sampled_from([0.1, 1.0, 1.1, 1.7, 3.3, 90.0, 0.3, 86_400.1, 1e9]) | st.floats(1.0, 1e6)
moments = st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2060, 1, 1), timezones=st.just(dt.UTC))
names = st.sampled_from([(zone, change) for zone, changes in CHANGES.items() for change in changes])


# -- equal distances ---------------------------------------------------------------------------------------------------


@given(distances, moments)
def test_the_number_of_a_moment_is_that_of_the_latest_due_time(every_s: float, moment: dt.datetime) -> None:
    number = number_at(moment, every_s)
    assert moment_of(number, every_s) <= moment < moment_of(number + 1, every_s)
    assert number_at(moment_of(number, every_s), every_s) == number


@given(distances, st.integers(0, 10**7))
def test_the_nth_moment_is_exact_to_a_microsecond(every_s: float, number: int) -> None:
    number = min(number, int(1e11 / every_s))
    exact = number * Fraction(str(every_s)) * 1_000_000
    assert 0 <= exact - (moment_of(number, every_s) - EPOCH) // dt.timedelta(microseconds=1) < 1


def test_short_intervals_do_not_accumulate_rounding_errors() -> None:
    assert moment_of(17_000_000_003, 0.1) == EPOCH + dt.timedelta(seconds=1_700_000_000, milliseconds=300)
    assert moment_of(2, 1e9) == EPOCH + dt.timedelta(seconds=2_000_000_000)
    assert number_at(moment_of(2, 1e9) - dt.timedelta(microseconds=1), 1e9) == 1


# -- changes of the clock ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"), [(name, one) for name in CHANGES if name != "UTC" for one in CHANGES[name]]
)
def test_a_change_is_found_to_the_second(name: str, change: str) -> None:
    zone, moment = ZoneInfo(name), utc(change)
    assert offset_change(zone, moment - dt.timedelta(days=40, seconds=1), moment + dt.timedelta(hours=5)) == moment
    assert offset_change(zone, moment - dt.timedelta(seconds=1), moment) == moment
    assert offset_change(zone, moment, moment + dt.timedelta(days=9)) is None
    assert offset_change(zone, moment - dt.timedelta(days=1), moment - dt.timedelta(seconds=1)) is None


def shown(zone: ZoneInfo, begin: dt.datetime, minutes: int) -> list[tuple[dt.datetime, dt.datetime]]:
    """Return each minute with the local time that a clock shows."""
    looked = [begin + number * MINUTE for number in range(minutes)]
    return [(moment, moment.astimezone(zone).replace(tzinfo=None, fold=0)) for moment in looked]


def check_each_minute(
    zone: ZoneInfo, begin: dt.datetime, minutes: int, wanted: set[int], hours: set[int]
) -> list[dt.datetime]:
    """Return the due times by a check of the clock every minute."""
    seen = shown(zone, begin, minutes)
    if len(hours) == 24:
        return [moment for moment, wall in seen[1:] if wall.minute in wanted]
    due: set[dt.datetime] = set()
    latest = seen[0][1]
    for moment, wall in seen[1:]:
        # The minutes since the latest local time so far: one, the skipped ones, or none.
        while latest < wall:
            latest += MINUTE
            if latest.minute in wanted and latest.hour in hours:
                due.add(moment)
    return sorted(due)


@settings(max_examples=40)
@example(("Europe/Berlin", "2026-03-29T01:00"), {30}, {2}, False, 5)
@example(("Europe/Berlin", "2026-10-25T01:00"), {0, 15, 30, 45}, {2}, True, 9)
@example(("Pacific/Apia", "2011-12-30T10:00"), {0}, {9}, False, 2)
@given(
    names,
    st.sets(st.integers(0, 59), min_size=1, max_size=6),
    st.sets(st.integers(0, 4) | st.just(23), min_size=1) | st.just(set(range(24))),
    st.booleans(),
    st.integers(1, 40),
)
def test_due_times_equal_those_of_a_minute_by_minute_check(
    place: tuple[str, str], minutes: set[int], hours: set[int], seconds: bool, count: int
) -> None:
    zone, change = ZoneInfo(place[0]), utc(place[1])
    cron = f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * *"
    cron = f"0 {cron}" if seconds else cron
    begin, length = change - dt.timedelta(days=1, hours=3), 2 * 24 * 60 + 600
    expected = check_each_minute(zone, begin, length, minutes, hours)
    found, due = list[dt.datetime](), due_after(cron, zone, begin)
    while due < begin + length * MINUTE:
        found.append(due)
        due = due_after(cron, zone, due)
    assert found == expected
    # The due times do not depend on the moment of the query.
    for moment in (change + minutes_after * MINUTE for minutes_after in range(-70, 130, 23)):
        assert due_after(cron, zone, moment) == next(one for one in [*expected, due] if one > moment)
    assert due_between(cron, zone, expected[0], expected[-1], count) == expected[-count:]


def test_a_query_within_the_repeated_hour_returns_the_next_day() -> None:
    assert due_after("30 2 * * *", BERLIN, utc("2026-10-25T01:10")) == utc("2026-10-26T01:30")


def test_every_spelling_of_hourly_is_due_each_hour() -> None:
    for hours in ("*", "*/1", "0-23"):
        found = [utc("2026-10-24T23:30")]
        for _ in range(4):
            found.append(due_after(f"30 {hours} * * *", BERLIN, found[-1]))
        assert found == [utc("2026-10-24T23:30") + dt.timedelta(hours=number) for number in range(5)]


def test_a_due_time_is_exact_to_a_microsecond() -> None:
    moment = utc("2026-01-01T08:00")
    tick = dt.timedelta(microseconds=1)
    assert due_after("0 9 * * *", BERLIN, moment - tick) == moment
    assert due_after("0 * * * *", BERLIN, moment - tick) == moment
    assert due_after("0 * * * *", BERLIN, moment + tick) == moment + dt.timedelta(hours=1)
