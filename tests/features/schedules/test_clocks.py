"""The arithmetic of clocks: beside one who counts in fractions, and one who looks at a clock every minute."""

import datetime as dt
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callboard.features.schedules.clocks import EPOCH, due_after, due_between, moment_of, number_at, offset_change

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


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


# -- equal distances ---------------------------------------------------------------------------------------------------


@given(distances, moments)
def test_the_number_of_a_moment_is_that_of_the_latest_which_it_has_reached(every_s: float, moment: dt.datetime) -> None:
    number = number_at(moment, every_s)
    assert moment_of(number, every_s) <= moment < moment_of(number + 1, every_s)
    assert number_at(moment_of(number, every_s), every_s) == number


@given(distances, st.integers(0, 10**7))
def test_the_nth_is_counted_from_the_first(every_s: float, number: int) -> None:
    number = min(number, int(1e11 / every_s))
    exact = number * Fraction(str(every_s)) * 1_000_000
    assert 0 <= exact - (moment_of(number, every_s) - EPOCH) // dt.timedelta(microseconds=1) < 1


def test_a_tenth_is_a_tenth_however_often() -> None:
    assert moment_of(17_000_000_003, 0.1) == EPOCH + dt.timedelta(seconds=1_700_000_000, milliseconds=300)
    assert moment_of(2, 1e9) == EPOCH + dt.timedelta(seconds=2_000_000_000)
    assert number_at(moment_of(2, 1e9) - dt.timedelta(microseconds=1), 1e9) == 1


# -- clocks on a wall --------------------------------------------------------------------------------------------------


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
    """What clocks show at each of so many minutes."""
    looked = [begin + number * MINUTE for number in range(minutes)]
    return [(moment, moment.astimezone(zone).replace(tzinfo=None, fold=0)) for moment in looked]


def looked_up(zone: ZoneInfo, begin: dt.datetime, minutes: int, wanted: set[int], hours: set[int]) -> list[dt.datetime]:
    """When something is due, by who looks at a clock every minute."""
    seen = shown(zone, begin, minutes)
    if len(hours) == 24:
        return [moment for moment, wall in seen[1:] if wall.minute in wanted]
    due: set[dt.datetime] = set()
    latest = seen[0][1]
    for moment, wall in seen[1:]:
        # What has come since the latest that was ever shown: one minute, those skipped, or none.
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
def test_due_is_what_somebody_finds_who_looks_at_a_clock_every_minute(
    place: tuple[str, str], minutes: set[int], hours: set[int], seconds: bool, count: int
) -> None:
    zone, change = ZoneInfo(place[0]), utc(place[1])
    cron = f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * *"
    cron = f"0 {cron}" if seconds else cron
    begin, length = change - dt.timedelta(days=1, hours=3), 2 * 24 * 60 + 600
    expected = looked_up(zone, begin, length, minutes, hours)
    found, due = list[dt.datetime](), due_after(cron, zone, begin)
    while due < begin + length * MINUTE:
        found.append(due)
        due = due_after(cron, zone, due)
    assert found == expected
    # Whoever asks at another moment is told of no other times.
    for moment in (change + minutes_behind * MINUTE for minutes_behind in range(-70, 130, 23)):
        assert due_after(cron, zone, moment) == next(one for one in [*expected, due] if one > moment)
    assert due_between(cron, zone, expected[0], expected[-1], count) == expected[-count:]


def test_whoever_asks_within_the_hour_that_is_repeated_is_told_of_the_next_day() -> None:
    assert due_after("30 2 * * *", BERLIN, utc("2026-10-25T01:10")) == utc("2026-10-26T01:30")


def test_every_hour_by_whatever_words_goes_on_evenly() -> None:
    for hours in ("*", "*/1", "0-23"):
        found = [utc("2026-10-24T23:30")]
        for _ in range(4):
            found.append(due_after(f"30 {hours} * * *", BERLIN, found[-1]))
        assert found == [utc("2026-10-24T23:30") + dt.timedelta(hours=number) for number in range(5)]


def test_part_of_a_second_is_behind_what_was_due_at_it() -> None:
    moment = utc("2026-01-01T08:00")
    tick = dt.timedelta(microseconds=1)
    assert due_after("0 9 * * *", BERLIN, moment - tick) == moment
    assert due_after("0 * * * *", BERLIN, moment - tick) == moment
    assert due_after("0 * * * *", BERLIN, moment + tick) == moment + dt.timedelta(hours=1)
