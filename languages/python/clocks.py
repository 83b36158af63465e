"""Clocks: in a workflow the clocks of the standard library have the run's time, and the local time zone is UTC.

The time zone of a machine differs from that of the next one.
"""

import asyncio
import calendar
import datetime as dt
import time
from collections.abc import Callable
from typing import Any

from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.replacing import replace, replace_method, replace_values

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_gmtime, _asctime, _strftime = time.gmtime, time.asctime, time.strftime
_astimezone, _timestamp = dt.datetime.astimezone, dt.datetime.timestamp
_fromtimestamp: Any = dt.datetime.__dict__["fromtimestamp"]
"""The originals, which the replacements call."""


def _keep_loop_time(monotonic: Callable[[], float]) -> None:
    """Have all other event loops of the process read the original clock, as they do many times for each step."""

    def read(self: asyncio.BaseEventLoop) -> float:
        return monotonic()

    asyncio.BaseEventLoop.time = read


def replace_clocks() -> None:
    """Replace the clocks, and what converts to the local time zone."""
    _keep_loop_time(time.monotonic)
    replace(time, "time", lambda loop: _timestamp(loop.stage.now()))
    replace(time, "time_ns", lambda loop: nanoseconds(loop.stage.now()))
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        replace(time, name, lambda loop: loop.time())
        replace(time, f"{name}_ns", lambda loop: nanoseconds(loop.stage.now()) - nanoseconds(loop.began))
    if hasattr(time, "clock_gettime"):
        replace(time, "clock_gettime", lambda loop, clock: _read_clock(loop, clock) / 1e9)
        replace(time, "clock_gettime_ns", _read_clock)
    replace(time, "gmtime", _gm)
    replace(time, "localtime", _local)
    replace(time, "ctime", lambda loop, seconds=None: _asctime(_gm(loop, seconds)))
    replace(time, "asctime", lambda loop, t=None: _asctime(_gm(loop) if t is None else t))
    replace(time, "strftime", _format)
    replace(time, "mktime", lambda _loop, t: float(calendar.timegm(t)))
    utc = {"tzname": ("UTC", "UTC"), "timezone": 0, "altzone": 0, "daylight": 0}
    replace_values(time, {name: _make_constant(value) for name, value in utc.items()})
    for name in ("now", "utcnow", "today"):
        replace_method(dt.datetime, name, _now)
    replace_method(dt.date, "today", lambda loop, cls: cls(*loop.stage.now().timetuple()[:3]))
    replace_method(dt.datetime, "astimezone", _convert)
    replace_method(dt.datetime, "timestamp", _count)
    replace_method(dt.datetime, "fromtimestamp", _from_count)
    replace_method(dt.date, "fromtimestamp", lambda _loop, cls, t: cls(*_gmtime(t)[:3]))


def nanoseconds(at: dt.datetime) -> int:
    """Return the nanoseconds from the epoch to an instant."""
    return (at - EPOCH) // dt.timedelta(microseconds=1) * 1_000


def _read_clock(loop: WorkflowLoop, clock: int) -> int:
    now = nanoseconds(loop.stage.now())
    return now if clock == time.CLOCK_REALTIME else now - nanoseconds(loop.began)


def _make_constant(value: Any) -> Callable[[WorkflowLoop], Any]:
    return lambda _loop: value


def _gm(loop: WorkflowLoop, seconds: float | None = None) -> time.struct_time:
    return _gmtime(_timestamp(loop.stage.now()) if seconds is None else seconds)


def _with_zone(t: Any) -> time.struct_time:
    return time.struct_time((*tuple(t)[:9], "UTC", 0))


def _local(loop: WorkflowLoop, seconds: float | None = None) -> time.struct_time:
    return _with_zone(_gm(loop, seconds))


def _format(loop: WorkflowLoop, format: str, t: Any = None) -> str:
    if t is None:
        t = _local(loop)
    if getattr(t, "tm_zone", None) is not None:
        return _strftime(format, t)
    return _strftime(format, _with_zone(t))


def _now(loop: WorkflowLoop, cls: Any, tz: dt.tzinfo | None = None) -> Any:
    """Return the run's time, in UTC unless another time zone is given."""
    return _from_count(loop, cls, _timestamp(loop.stage.now()), tz)


def _from_count(_loop: WorkflowLoop, cls: Any, timestamp: float, tz: dt.tzinfo | None = None) -> Any:
    found = _fromtimestamp.__get__(None, cls)(timestamp, dt.UTC if tz is None else tz)
    return found.replace(tzinfo=None) if tz is None else found


def _convert(_loop: WorkflowLoop, at: dt.datetime, tz: dt.tzinfo | None = None) -> dt.datetime:
    known = at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at
    return _astimezone(known, dt.UTC if tz is None else tz)


def _count(_loop: WorkflowLoop, at: dt.datetime) -> float:
    return _timestamp(at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at)
