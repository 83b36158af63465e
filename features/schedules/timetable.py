"""Timetables: the due times of a schedule, by a cron expression in a time zone, or at equal intervals."""

import datetime as dt
from hashlib import blake2b
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec import Struct

from callboard.bus.events import Problem
from callboard.features.schedules.clocks import UTC, due_after, due_between, moment_of, number_at

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
