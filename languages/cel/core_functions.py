"""The functions of core CEL except the conversions: sizes, searches and patterns in texts, parts of timestamps."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from callboard.languages.cel.arithmetic import quotient, remainder
from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.overloads import Counted, Declarations, count_texts
from callboard.languages.cel.temporal import NS, to_datetime
from callboard.languages.cel.text_search import contains
from callboard.languages.cel.values import Duration, Timestamp, Value
from callboard.lib.patterns import BadPattern

ZONES_KEPT_MAX = 256
"""How many time zones are cached."""

ZONE_CHARS_MAX = 64
"""How long a time zone's name may be, in characters."""

ZONE_STEPS = 3_000
"""Steps for a time zone that an evaluation uses for the first time, because it is read from a file."""

LOCAL_STEPS = 15
"""Steps for a part of a timestamp in a time zone."""

_FIXED = re.compile(r"([+-]?)([0-9]{2}):([0-9]{2})", re.ASCII)


@lru_cache(ZONES_KEPT_MAX)
def find_zone(name: str) -> tzinfo:
    """Return a time zone by its name in the IANA database, or by an offset such as ``+02:00``.

    :raises EvaluationError: if the time zone does not exist
    """
    if match := _FIXED.fullmatch(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < timedelta(days=1):
            return timezone(-offset if match[1] == "-" else offset)
    elif 0 < len(name) <= ZONE_CHARS_MAX:
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            pass
    raise EvaluationError(f"{show_value(name)} is no time zone; write one like 'Europe/Paris' or '+02:00'")


def _local(timestamp: Timestamp, name: str | None) -> datetime:
    instant = to_datetime(timestamp)
    try:
        return instant.astimezone(find_zone(name)) if name is not None else instant.astimezone(UTC)
    except OverflowError:
        raise EvaluationError("in that time zone the instant lies outside of the years 1 to 9999") from None


_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda local: local.year,
    "getMonth": lambda local: local.month - 1,
    "getDate": lambda local: local.day,
    "getDayOfMonth": lambda local: local.day - 1,
    "getDayOfWeek": lambda local: local.isoweekday() % 7,
    "getDayOfYear": lambda local: local.timetuple().tm_yday - 1,
    "getHours": lambda local: local.hour,
    "getMinutes": lambda local: local.minute,
    "getSeconds": lambda local: local.second,
    "getMilliseconds": lambda local: local.microsecond // 1000,
}


def _part_in_utc(part: Callable[[datetime], int]) -> Callable[[Timestamp], int]:
    return lambda timestamp: part(_local(timestamp, None))


def _part_in_zone(part: Callable[[datetime], int]) -> Counted:
    def count_and_call(budget: Budget, timestamp: Timestamp, name: str) -> int:
        budget.take_first(f"zone {name}", ZONE_STEPS)
        budget.take(LOCAL_STEPS)
        return part(_local(timestamp, name))

    return Counted(count_and_call)


def _in_units(ns: int) -> Callable[[Duration], int]:
    return lambda duration: quotient(duration.ns, ns)


def _size(value: Value) -> int:
    return len(value)


def _matches(budget: Budget, text: str, pattern: str) -> bool:
    """Return whether a pattern, in the syntax of RE2, matches somewhere in a text.

    :raises EvaluationError: if RE2 does not accept the pattern, or it is too large
    :raises TooManySteps: if the steps are used up
    """
    try:
        budget.take_text(len(pattern))
        return budget.patterns.found(pattern, text)
    except BadPattern as bad:
        raise EvaluationError(f"{show_value(pattern)} is no regular expression of RE2: {bad}") from None
    except UnicodeEncodeError:
        raise EvaluationError("a text holds half of a surrogate pair, which matches nothing") from None


CORE: Declarations = {
    **{f"size({kind})": _size for kind in ("string", "bytes", "list", "map")},
    **{f"{kind}.size()": _size for kind in ("string", "bytes", "list", "map")},
    "string.contains(string)": Counted(contains),
    "string.startsWith(string)": count_texts(str.startswith),
    "string.endsWith(string)": count_texts(str.endswith),
    "string.matches(string)": Counted(_matches),
    "matches(string, string)": Counted(_matches),
    **{f"timestamp.{name}()": _part_in_utc(part) for name, part in _PARTS.items()},
    **{f"timestamp.{name}(string)": _part_in_zone(part) for name, part in _PARTS.items()},
    "duration.getHours()": _in_units(3600 * NS),
    "duration.getMinutes()": _in_units(60 * NS),
    "duration.getSeconds()": _in_units(NS),
    "duration.getMilliseconds()": lambda duration: quotient(remainder(duration.ns, NS), 1_000_000),
}
"""All of these functions, by signature."""
