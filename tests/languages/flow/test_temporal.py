"""Durations and instants of the flow language."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.flow.temporal import (
    EARLIEST,
    LATEST,
    TEMPORAL_CHARS_MAX,
    CalendarDuration,
    format_instant,
    parse_duration,
    parse_instant,
)

ALMOST_DURATIONS = st.text("PYMWDTHS0123456789.,+- ", max_size=14)
ALMOST_INSTANTS = st.text("0123456789-:.TtZz+ ", max_size=30)
DURATIONS = st.builds(CalendarDuration, st.integers(-(10**7), 10**7), st.timedeltas())
INSTANTS = st.datetimes(timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("text", "months", "seconds"),
    [
        ("PT30S", 0, 30),
        ("PT0S", 0, 0),
        ("P0D", 0, 0),
        ("-PT5S", 0, -5),
        ("+P1D", 0, 86_400),
        ("P2W", 0, 1_209_600),
        ("P0.5W", 0, 302_400),
        ("P1Y2M3DT4H5M6S", 14, 3 * 86_400 + 4 * 3_600 + 5 * 60 + 6),
        ("-P1Y1D", -12, -86_400),
        ("PT36H", 0, 129_600),
        ("P1M", 1, 0),
        ("PT1M", 0, 60),
        ("PT0.5S", 0, 0.5),
        ("PT0,25H", 0, 900),
        ("P1.5D", 0, 129_600),
        ("P0.5Y", 6, 0),
        ("P1.5M", 1, 15 * 86_400),
        ("PT0.0000001S", 0, 0),
    ],
)
def test_a_duration_is_read(text: str, months: int, seconds: float) -> None:
    assert parse_duration(text) == CalendarDuration(months, timedelta(seconds=seconds))


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "-P", "P1DT", "P1", "PT5", "5S", "T5S", "pt5s", "P1H", "PT1D", "P1S", "P1Y1S"),
        *("PT1.5H3M", "P.5D", "P5.D", "P1D2Y", "P1W1D", "P1DT1W", "P-1D", "--PT5S", "P 1D", " PT5S", "PT5S\n"),
        *("P١D", "300s", "not-a-duration", "PT" + "1" * TEMPORAL_CHARS_MAX + "S"),
    ],
)
def test_an_invalid_duration_is_not_read(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("start", "duration", "end"),
    [
        ("2024-01-31T00:00:00Z", "P1M", "2024-02-29T00:00:00Z"),
        ("2023-01-31T00:00:00Z", "P1M", "2023-02-28T00:00:00Z"),
        ("2024-02-29T12:00:00Z", "P1Y", "2025-02-28T12:00:00Z"),
        ("2024-03-31T00:00:00Z", "-P1M", "2024-02-29T00:00:00Z"),
        ("2024-11-15T00:00:00Z", "P3M1D", "2025-02-16T00:00:00Z"),
        ("2024-01-01T00:00:00Z", "-PT1S", "2023-12-31T23:59:59Z"),
        ("2024-01-01T01:00:00+02:00", "PT0S", "2023-12-31T23:00:00Z"),
    ],
)
def test_months_follow_the_calendar(start: str, duration: str, end: str) -> None:
    from_, by = parse_instant(start), parse_duration(duration)
    assert from_ is not None
    assert by is not None
    assert format_instant(by.after(from_)) == end


@pytest.mark.parametrize(
    ("text", "end"),
    [("P9999Y", LATEST), ("-P9999Y", EARLIEST), ("P" + "9" * 200 + "Y", LATEST), ("-PT" + "9" * 200 + "H", EARLIEST)],
)
def test_an_instant_beyond_the_bounds_of_time_is_clamped(text: str, end: datetime) -> None:
    duration = parse_duration(text)
    assert duration is not None
    assert duration.after(datetime(2024, 1, 1, tzinfo=UTC)) == end


@given(DURATIONS, INSTANTS)
def test_any_duration_after_any_instant_is_an_instant(duration: CalendarDuration, instant: datetime) -> None:
    assert EARLIEST <= duration.after(instant) <= LATEST


def test_instants_of_other_zones_are_clamped_too() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    assert CalendarDuration().after(datetime.min.replace(tzinfo=east)) == EARLIEST
    assert CalendarDuration().after(datetime.max.replace(tzinfo=west)) == LATEST
    assert format_instant(datetime.max.replace(tzinfo=west)) == "9999-12-31T23:59:59.999999Z"


def test_seconds_count_365_days_a_year_and_30_a_month() -> None:
    lengths = {text: parse_duration(text) for text in ("P1Y", "P1M", "P12M", "-P1M", "P1Y1DT1S")}
    assert {text: found.seconds() / 86_400 for text, found in lengths.items() if found} == {
        "P1Y": 365,
        "P1M": 30,
        "P12M": 365,
        "-P1M": -30,
        "P1Y1DT1S": 366 + 1 / 86_400,
    }


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-01-15T09:30:00Z", "2024-01-15T09:30:00Z"),
        ("2024-01-15t09:30:00z", "2024-01-15T09:30:00Z"),
        ("2024-01-15T09:30:00.5Z", "2024-01-15T09:30:00.500000Z"),
        ("2024-01-15T09:30:00.000Z", "2024-01-15T09:30:00Z"),
        ("2024-01-15T09:30:00.123456789012Z", "2024-01-15T09:30:00.123456Z"),
        ("2024-01-15T09:30:00+05:30", "2024-01-15T04:00:00Z"),
        ("2024-01-15T09:30:00-08:00", "2024-01-15T17:30:00Z"),
        ("2024-01-15T09:30:00-00:00", "2024-01-15T09:30:00Z"),
        ("1998-12-31T23:59:60Z", "1999-01-01T00:00:00Z"),
        ("1998-12-31T15:59:60.25-08:00", "1999-01-01T00:00:00.250000Z"),
        ("9999-12-31T23:59:60Z", "9999-12-31T23:59:59.999999Z"),
        ("9999-12-31T23:00:00-02:00", "9999-12-31T23:59:59.999999Z"),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00Z"),
        ("0000-02-29T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_an_instant_is_read_and_written_in_utc(text: str, written: str) -> None:
    instant = parse_instant(text)
    assert instant is not None
    assert instant.tzinfo is UTC
    assert format_instant(instant) == written


@pytest.mark.parametrize(
    "text",
    [
        *("", "2024-01-15", "09:30:00Z", "2024-01-15T09:30:00", "2024-01-15 09:30:00Z", "2024-01-15T09:30Z"),
        *("2024-02-30T00:00:00Z", "2023-02-29T00:00:00Z", "0000-02-30T00:00:00Z", "2024-13-01T00:00:00Z"),
        *("2024-01-15T24:00:00Z", "2024-01-15T09:60:00Z", "2024-01-15T09:30:61Z", "2024-01-15T09:30:00.Z"),
        *("2024-01-15T09:30:00+0100", "2024-01-15T09:30:00+24:00", "2024-01-15T09:30:00+01:60"),
        *("1998-12-31T22:59:60Z", "1998-12-30T23:59:60Z", "1998-12-31T23:59:60+01:00", "9999-12-31T22:59:60Z"),
        *("24-01-15T09:30:00Z", "２024-01-15T09:30:00Z", "2024-01-15T09:30:00Z\n", "2024-W03-1T09:30:00Z"),
        "2024-01-15T09:30:00." + "0" * TEMPORAL_CHARS_MAX + "Z",
    ],
)
def test_an_invalid_instant_is_not_read(text: str) -> None:
    assert parse_instant(text) is None


@given(INSTANTS)
def test_a_written_instant_is_read_as_the_same(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant


@given(ALMOST_DURATIONS, ALMOST_INSTANTS)
def test_no_text_makes_the_readers_raise(duration: str, instant: str) -> None:
    assert isinstance(parse_duration(duration), CalendarDuration | None)
    assert isinstance(parse_instant(instant), datetime | None)
