"""Timetables: the due times of a schedule, by a cron expression in a time zone, or at equal intervals.

The arithmetic is pure and exact: intervals are fractions, counted from 1970, and moments are whole microseconds. An
expression that names every hour is due whenever local clocks show a matching time, also through a change of the clocks.
Any other expression is due once for each local time: at the first of two moments that show it, or, for a skipped time,
at the moment of the change. Debian's cron(8) does the same, but recognises the first kind by asterisks.
"""

import datetime as dt
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from hashlib import blake2b
from itertools import islice
from math import ceil, floor
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec import Struct

from callboard.bus.events import Problem

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
HOURS = 24

_MICROSECOND = dt.timedelta(microseconds=1)
_SECOND = dt.timedelta(seconds=1)
_DAY = dt.timedelta(days=1)
"""Two changes of the clocks are at least this far apart."""


def number_at(moment: dt.datetime, every_s: float) -> int:
    """Return the number of the latest interval that has begun at a moment."""
    passed = (moment - EPOCH) // _MICROSECOND
    return ceil((passed + 1) / _distance(every_s)) - 1


def moment_of(number: int, every_s: float) -> dt.datetime:
    """Return the moment, in UTC, that is ``number`` intervals after 1970, in whole microseconds."""
    return EPOCH + floor(number * _distance(every_s)) * _MICROSECOND


def _distance(every_s: float) -> Fraction:
    """Return an interval in microseconds, as it was written: 0.1 is exactly a tenth, not its binary approximation."""
    return Fraction(repr(every_s)) * 1_000_000


def due_after(cron: str, zone: ZoneInfo, moment: dt.datetime) -> dt.datetime:
    """Return the first moment after another, in UTC, at which an expression is due.

    :raises StopIteration: if it is never due
    """
    begin = moment.astimezone(UTC).replace(microsecond=0)
    if len(CronSim(cron, EPOCH).hours) == HOURS:
        return _shown_after(cron, zone, begin)
    return next(due for wall in CronSim(cron, _wall(begin, zone)) if (due := _first_at(wall, zone)) > moment)


def due_between(cron: str, zone: ZoneInfo, first: dt.datetime, until: dt.datetime, count: int) -> list[dt.datetime]:
    """Return the due moments from ``first``, which is due itself, to ``until``; at most the latest ``count``."""
    looked = count + 1
    while True:
        # When clocks are put forward, several local times are due at one moment: then start further back.
        begin = max(first, _back(cron, zone, until, looked) or first)
        found = deque([first] if begin == first else [], count)
        due = due_after(cron, zone, begin)
        while due <= until:
            found.append(due)
            due = due_after(cron, zone, due)
        if len(found) == count or begin == first:
            return list(found)
        looked *= 2


def offset_change(zone: ZoneInfo, begin: dt.datetime, until: dt.datetime) -> dt.datetime | None:
    """Return the first moment after ``begin``, up to ``until``, at which the offset from UTC has changed."""
    offset, low = begin.astimezone(zone).utcoffset(), begin
    while low < until:
        high = min(low + _DAY, until)
        if high.astimezone(zone).utcoffset() == offset:
            low = high
            continue
        while high - low > _SECOND:
            middle = low + (high - low) // _SECOND // 2 * _SECOND
            low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
        return high
    return None


def _shown_after(cron: str, zone: ZoneInfo, begin: dt.datetime) -> dt.datetime:
    """Return the first moment after a whole second at which clocks show a time of an expression."""
    # After a change, the time shown at that very moment counts, too.
    since, shown, sought = begin, _wall(begin, zone), _wall(begin, zone)
    while True:
        due = since + (next(CronSim(cron, sought)) - shown)
        change = offset_change(zone, since, due)
        if change is None:
            return due
        since, shown, sought = change, _wall(change, zone), _wall(change, zone) - _SECOND


def _first_at(wall: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """Return the first moment at which clocks show a time, or have skipped it."""
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    if _wall(found, zone) == wall:
        return found
    # Skipped: with the offset before the change it is after the change, with the offset after it, before.
    return offset_change(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), found) or found


def _back(cron: str, zone: ZoneInfo, until: dt.datetime, count: int) -> dt.datetime | None:
    """Return the moment ``count`` matching local times before another; None if there are fewer."""
    earlier: Iterator[dt.datetime] = CronSim(cron, _wall(until, zone) + _SECOND, reverse=True)
    wall = next(islice(earlier, count - 1, None), None)
    return None if wall is None else _first_at(wall, zone)


def _wall(moment: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    """Return the local time that clocks show."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


EVERY_MIN_S = 1.0
"""Shortest interval between two due times; the server checks its clocks four times per second."""

EVERY_MAX_S = 366 * 86_400.0
JITTER_MAX_S = 86_400.0


class Timetable(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Due times: by ``cron`` (five fields, or six with seconds first) in the local time of ``timezone``, or every
    ``every_s`` seconds, counted from 1970.

    A local time that a change of the clocks skips is due right after the change, and a repeated one is due once, unless
    the expression names every hour: then all times that the clocks show count. Each due time is delayed by up to
    ``jitter_s`` seconds; the delay is derived from the schedule and the due time, so it never varies.
    """

    cron: str | None = None
    timezone: str = "UTC"
    every_s: float | None = None
    jitter_s: float = 0.0

    def after(self, moment: dt.datetime) -> dt.datetime:
        """Return the first due time after a moment, in UTC."""
        if self.every_s is not None:
            return moment_of(number_at(moment, self.every_s) + 1, self.every_s)
        return due_after(self.cron or "", ZoneInfo(self.timezone), moment)

    def passed_times(self, first: dt.datetime, until: dt.datetime, count: int) -> list[dt.datetime]:
        """Return the due times from ``first``, which is due itself, to ``until``; at most the latest ``count``."""
        if self.every_s is None:
            return due_between(self.cron or "", ZoneInfo(self.timezone), first, until, count)
        latest = number_at(until, self.every_s)
        begin = max(number_at(first, self.every_s), latest - count) + 1
        later = [moment_of(number, self.every_s) for number in range(begin, latest + 1)]
        return [first, *later] if len(later) < count else later

    def put_off(self, due: dt.datetime, name: str) -> dt.datetime:
        """Return the moment at which a schedule acts on a due time: the due time with its jitter."""
        if not self.jitter_s:
            return due
        drawn = int.from_bytes(blake2b(f"{name}/{due.isoformat()}".encode(), digest_size=6).digest(), "big")
        return due + dt.timedelta(seconds=self.jitter_s * drawn / 2**48)

    def text(self) -> str:
        """Return the timetable as text for people."""
        return f"every {self.every_s:g} s" if self.every_s is not None else f"{self.cron} {self.timezone}"


def problems(timetable: Timetable) -> list[Problem]:
    """Return the problems of a timetable."""
    found: list[Problem] = []
    if (timetable.cron is None) == (timetable.every_s is None):
        message = "a schedule needs either a cron expression or an interval"
        found.append(Problem("schedule.when", message, "when", expected="one of `cron` and `every_s`"))
    if timetable.every_s is not None and not EVERY_MIN_S <= timetable.every_s <= EVERY_MAX_S:
        message, expected = f"invalid interval: {timetable.every_s:g} s", f"{EVERY_MIN_S:g} s to 366 days"
        found.append(Problem("schedule.every", message, "when.every_s", expected=expected))
    if not 0 <= timetable.jitter_s <= JITTER_MAX_S:
        message = f"invalid jitter: {timetable.jitter_s:g} s"
        found.append(Problem("schedule.jitter", message, "when.jitter_s", expected="0 s to a day"))
    try:
        ZoneInfo(timetable.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message, expected = f"unknown time zone: {timetable.timezone!r}", "a name such as Europe/Berlin"
        found.append(Problem("schedule.timezone", message, "when.timezone", expected=expected))
    return [*found, *(_of_cron(timetable.cron) if timetable.cron is not None else ())]


def _of_cron(cron: str) -> list[Problem]:
    try:
        next(CronSim(cron, dt.datetime.now(UTC)))
    except (CronSimError, StopIteration) as error:
        message = f"invalid cron expression {cron!r}: {str(error) or 'it is never due'}"
        expected = "minute, hour, day of the month, month, day of the week; such as `0 9 * * 1-5`"
        return [Problem("schedule.cron", message, "when.cron", expected=expected)]
    return []
