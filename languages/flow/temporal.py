"""Durations and instants as the flow language writes them: ISO 8601 durations and RFC 3339 timestamps.

In the specification's temporal profile (page *Data model*) both are plain strings. Zero and negative durations and
instants in the past are valid; for a text that cannot be parsed the functions return None.
"""

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache

from msgspec import Struct

TEMPORAL_CHARS_MAX = 256
"""The greatest length of a duration or an instant, in characters; longer texts are invalid."""

DURATIONS_REMEMBERED = 1_024
"""How many parsed durations are cached: a flow has few, and parses them often."""

DAYS_PER_YEAR, DAYS_PER_MONTH = 365, 30
"""The length of a year and a month, in days, without a start date."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)

_NUMBER = r"[0-9]+(?:[.,][0-9]+)?"
_DURATION = re.compile(
    rf"(?P<sign>[+-]?)P(?=[0-9T])(?:(?P<weeks>{_NUMBER})W|"
    rf"(?:(?P<years>{_NUMBER})Y)?(?:(?P<months>{_NUMBER})M)?(?:(?P<days>{_NUMBER})D)?"
    rf"(?:T(?=[0-9])(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?(?:(?P<seconds>{_NUMBER})S)?)?)"
)
_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_MONTHS = {"years": 12, "months": 1}
_MICROSECOND = timedelta(microseconds=1)

_INSTANT = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[Tt]"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<offset_hours>[0-9]{2}):(?P<offset_minutes>[0-9]{2}))"
)
_LEAP_YEAR = 2000
"""Replaces the year 0000, which RFC 3339 allows and `datetime` does not; both are leap years."""


class CalendarDuration(Struct, frozen=True):
    """A duration: a number of calendar months, and an exact span."""

    months: int = 0
    span: timedelta = timedelta()

    def after(self, instant: datetime) -> datetime:
        """Return the instant in UTC after this duration, limited to the range of `datetime`.

        Months are counted in the calendar; a day that the resulting month does not have becomes its last day.
        """
        start = _in_utc(instant)
        year, month = divmod(start.year * 12 + start.month - 1 + self.months, 12)
        if not 1 <= year <= 9999:
            return LATEST if self.months > 0 else EARLIEST
        day = min(start.day, monthrange(year, month + 1)[1])
        return _move_instant(start.replace(year=year, month=month + 1, day=day), self.span)

    def seconds(self) -> float:
        """Return the length in seconds, with 365 days per year and 30 days per month."""
        years, months = divmod(abs(self.months), 12)
        days = years * DAYS_PER_YEAR + months * DAYS_PER_MONTH
        return (days if self.months >= 0 else -days) * 86_400.0 + self.span.total_seconds()


@lru_cache(DURATIONS_REMEMBERED)
def parse_duration(text: str) -> CalendarDuration | None:
    """Parse an ISO 8601 duration: ``P1Y2M3DT4H5M6S``, ``P2W``, ``PT0.5S``, ``-PT5S``; None for anything else.

    The smallest component may have a fraction, after a point or a comma. A fraction of a month is one of 30 days. Spans
    are rounded to microseconds and limited to the range of `timedelta`.
    """
    if len(text) > TEMPORAL_CHARS_MAX or not (found := _DURATION.fullmatch(text)):
        return None
    parts = {name: part.replace(",", ".") for name, part in found.groupdict().items() if name != "sign" and part}
    if any("." in part for part in list(parts.values())[:-1]):
        return None
    sign = -1 if found["sign"] == "-" else 1
    month_count = sum((Fraction(parts.get(name, 0)) * size for name, size in _MONTHS.items()), Fraction())
    whole_months = int(month_count)
    seconds = (month_count - whole_months) * DAYS_PER_MONTH * 86_400
    seconds += sum((Fraction(parts.get(name, 0)) * size for name, size in _SECONDS.items()), Fraction())
    return CalendarDuration(sign * whole_months, _span(sign * round(seconds * 1_000_000)))


def parse_instant(text: str) -> datetime | None:
    """Parse an RFC 3339 timestamp as an instant in UTC; None for anything else.

    Fractions are truncated to microseconds. A leap second, which is valid only at the end of a month in UTC, is read as
    the begin of the next month. Instants are limited to the range of `datetime`.
    """
    if len(text) > TEMPORAL_CHARS_MAX or not (found := _INSTANT.fullmatch(text)):
        return None
    year, second = int(found["year"]), int(found["second"])
    offset_hours, offset_minutes = int(found["offset_hours"] or 0), int(found["offset_minutes"] or 0)
    if second > 60 or offset_hours > 23 or offset_minutes > 59:
        return None
    microsecond = int((found["fraction"] or "0")[:6].ljust(6, "0"))
    clock = (int(found["hour"]), int(found["minute"]), min(second, 59), microsecond)
    try:
        local = datetime(year or _LEAP_YEAR, int(found["month"]), int(found["day"]), *clock, tzinfo=UTC)
    except ValueError:
        return None
    offset = timedelta(hours=offset_hours, minutes=offset_minutes)
    instant = _move_instant(local, offset if found["sign"] == "-" else -offset)
    if second == 60:
        after = _move_instant(instant, timedelta(seconds=1))
        if (after.day, after.hour, after.minute) != (1, 0, 0) and instant < LATEST - timedelta(seconds=1):
            return None
        instant = after
    return instant if year else EARLIEST


def format_instant(instant: datetime) -> str:
    """Write an instant as an RFC 3339 timestamp in UTC, with microseconds only if there are any."""
    utc = _in_utc(instant)
    return utc.replace(tzinfo=None).isoformat(timespec="microseconds" if utc.microsecond else "seconds") + "Z"


def _in_utc(instant: datetime) -> datetime:
    """Return the same instant in UTC; an instant without a time zone is taken as UTC."""
    return _move_instant(instant.replace(tzinfo=UTC), -(instant.utcoffset() or timedelta()))


def _span(microseconds: int) -> timedelta:
    shortest, longest = timedelta.min // _MICROSECOND, timedelta.max // _MICROSECOND
    return max(shortest, min(longest, microseconds)) * _MICROSECOND


def _move_instant(instant: datetime, span: timedelta) -> datetime:
    try:
        return instant + span
    except OverflowError:
        return LATEST if span > timedelta() else EARLIEST
