"""The functions that an expression can call: those of core CEL, of MWL, and of the extension profiles.

``toJson`` and ``fromJson`` convert a value to its canonical JSON text (RFC 8785), and back.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from json.encoder import encode_basestring
from math import isfinite
from zoneinfo import ZoneInfo

from callboard.languages.cel.arithmetic import check_size, quotient, remainder
from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.conversions import CONVERSIONS
from callboard.languages.cel.errors import EvaluationError, Unrepresentable, show_value
from callboard.languages.cel.json_data import to_data
from callboard.languages.cel.overloads import Counted, Declarations, Functions, count_parsing, count_texts
from callboard.languages.cel.profiles import ENCODERS, LISTS_PROFILE, MATH, SETS
from callboard.languages.cel.scope import BUDGET, CLOCK, Run, Scope
from callboard.languages.cel.strings_profile import STRINGS
from callboard.languages.cel.temporal import NS, iso8601_text, of_datetime, read_iso8601, to_datetime
from callboard.languages.cel.text_search import contains
from callboard.languages.cel.values import EXACT_MAX, Duration, Timestamp, Value, double_of
from callboard.lib.json_types import JSON
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
    def count_and_call(budget: EvaluationBudget, timestamp: Timestamp, name: str) -> int:
        budget.take_first(f"zone {name}", ZONE_STEPS)
        budget.take(LOCAL_STEPS)
        return part(_local(timestamp, name))

    return Counted(count_and_call)


def _in_units(ns: int) -> Callable[[Duration], int]:
    return lambda duration: quotient(duration.ns, ns)


def _size(value: Value) -> int:
    return len(value)


def _matches(budget: EvaluationBudget, text: str, pattern: str) -> bool:
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
"""The functions of core CEL except for the conversions, by signature."""

DATA_DEPTH_MAX = 100
"""How deep the arrays and objects of a parsed text may nest."""

WRITTEN_STEPS = 6
"""Steps for each written value."""

READ_CHARS_PER_STEP = 2
"""How many characters of a parsed text count as one step: every other character may be a value."""


def to_json(budget: EvaluationBudget, value: Value) -> str:
    """Serialize a value by RFC 8785.

    :raises EvaluationError: if the value cannot be data
    :raises TooManySteps: if the steps are used up
    """
    try:
        data = to_data(value, budget)
    except Unrepresentable as refused:
        raise EvaluationError(f"toJson(): {refused.message}") from None
    pieces: list[str] = []
    _write_json(data, pieces, budget)
    check_size(sum(map(len, pieces)))
    return "".join(pieces)


def _write_json(data: JSON, pieces: list[str], budget: EvaluationBudget) -> None:
    budget.take(WRITTEN_STEPS)
    if data is None or type(data) is bool:
        pieces.append("null" if data is None else "true" if data else "false")
    elif type(data) is str:
        budget.take_text(len(data))
        pieces.append(_quote(data))
    elif type(data) is list:
        before = "["
        for item in data:
            pieces.append(before)
            _write_json(item, pieces, budget)
            before = ","
        pieces.append("]" if data else "[]")
    elif type(data) is dict:
        before = "{"
        for name in sorted(data, key=_utf16):
            budget.take_text(len(name))
            pieces.append(f"{before}{_quote(name)}:")
            _write_json(data[name], pieces, budget)
            before = ","
        pieces.append("}" if data else "{}")
    else:
        pieces.append(number_text(data))


def _utf16(name: str) -> bytes:
    """Return the sort key of a member's name: its UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _quote(text: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise EvaluationError("toJson(): a text holds half of a surrogate pair")
    return encode_basestring(text)


def number_text(number: int | float) -> str:
    """Write a number as ECMAScript does: the shortest digits, an exponent from 1e21 on and below 1e-6."""
    if type(number) is int and abs(number) <= EXACT_MAX:
        return str(number)
    value = double_of(number) if type(number) is int else number
    if not isfinite(value):
        raise EvaluationError("toJson(): a number is not finite")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or "0") - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Place the decimal point after ``point`` digits; beyond 21 or below -5 write an exponent."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def from_json(budget: EvaluationBudget, text: str) -> Value:
    """Parse a JSON text.

    :raises EvaluationError: if it is not JSON, or a number or string in it cannot be data
    :raises TooManySteps: if the steps are used up
    """
    budget.take(1 + len(text) // READ_CHARS_PER_STEP)
    try:
        data = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"fromJson(): the text is no JSON: {error}") from None
    if "\\u" in text:
        _check_texts(data)
    if text.count("[") + text.count("{") > DATA_DEPTH_MAX:
        _check_depth(data)
    return double_of(data) if type(data) is int else data


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError("a number is beyond the doubles")
    return value


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= 15 else _finite(digits)


def _check_depth(data: JSON) -> None:
    level = [data]
    for _ in range(DATA_DEPTH_MAX):
        level = [child for node in level if type(node) in (list, dict) for child in _below(node)]
    if any(type(node) in (list, dict) for node in level):
        raise EvaluationError(f"fromJson(): the text is nested more than {DATA_DEPTH_MAX} deep")


def _below(node: JSON) -> Iterable[JSON]:
    return node.values() if type(node) is dict else node


def _check_texts(data: JSON) -> None:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise EvaluationError("fromJson(): a string holds half of a surrogate pair") from None


MWL: Declarations = {
    "toJson(any)": Counted(to_json),
    "fromJson(string)": Counted(from_json),
    "durationToIso8601(duration)": iso8601_text,
    "durationFromIso8601(string)": count_parsing(read_iso8601),
}
"""The functions of MWL (expressions, "MWL functions") except for the two that read the clock."""

FUNCTIONS = Functions(CORE, CONVERSIONS, MWL, STRINGS, LISTS_PROFILE, SETS, ENCODERS, MATH)

VARIADIC = frozenset(("math.greatest", "math.least"))
"""Functions with any number of arguments; several arguments are passed as a list."""


WALL_TIME_STEPS = 1_000
"""Steps for reading the wall clock, because each reading is recorded."""


def _now(scope: Scope) -> Timestamp:
    return of_datetime(scope[CLOCK].now())


def _wall_time(scope: Scope) -> Timestamp:
    scope[BUDGET].take(WALL_TIME_STEPS)
    return of_datetime(scope[CLOCK].wall_time())


CLOCK_FUNCTIONS: dict[str, Run] = {"now": _now, "wallTime": _wall_time}
"""The functions that read the clock; they have no arguments."""
