"""The arithmetic of due times: equal intervals counted from 1970, and local times across changes of the clocks.

Pure and exact: intervals are fractions, moments whole microseconds. An expression that names every hour is due whenever
local clocks show a matching time, also through a change. Any other expression is due once for each local time: at the
first of two moments that show it, or, for a skipped time, at the moment of the change. Debian's cron(8) does the same,
but recognises the first kind by asterisks.
"""

import datetime as dt
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from math import ceil, floor
from zoneinfo import ZoneInfo

from cronsim import CronSim

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
    if _names_every_hour(cron):
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


def _names_every_hour(cron: str) -> bool:
    return len(CronSim(cron, EPOCH).hours) == HOURS


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
