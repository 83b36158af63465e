"""Timestamps and durations: their ranges, and their texts in RFC 3339, in ISO 8601, and as durations in seconds."""

import re
from datetime import UTC, datetime, timedelta

from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.values import INT_MAX, INT_MIN, Duration, Timestamp

NS = 1_000_000_000
"""Nanoseconds per second."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_MIN_S = -62_135_596_800
TIMESTAMP_MAX_S = 253_402_300_799
"""The first second of the year 1 and the last of 9999, in seconds since 1970."""

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9})[0-9]*)?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_DURATION_PART = re.compile(r"([0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(h|ms|us|µs|μs|ns|m|s)", re.ASCII)
_UNITS = {"h": 3600 * NS, "m": 60 * NS, "s": NS, "ms": 10**6, "us": 10**3, "µs": 10**3, "μs": 10**3, "ns": 1}
_ISO = re.compile(
    r"([+-])?P(?:([0-9]+)W|(?:(N)Y)?(?:(N)M)?(?:(N)D)?(?:T(?=[0-9])(?:(N)H)?(?:(N)M)?(?:(N)S)?)?)".replace(
        "N", r"[0-9]+(?:[.,][0-9]+)?"
    ),
    re.ASCII,
)
DIGITS_MAX = 40
"""The greatest number of digits of a number in a duration."""

CHARS_MAX = 1_000
"""The greatest length of a timestamp or duration, in characters."""


def checked_timestamp(ns: int) -> Timestamp:
    """Return a timestamp, given in nanoseconds since 1970.

    :raises EvaluationError: if it is outside the years 1 to 9999
    """
    if not TIMESTAMP_MIN_S * NS <= ns < (TIMESTAMP_MAX_S + 1) * NS:
        raise EvaluationError("a timestamp lies between the years 1 and 9999")
    return Timestamp(ns)


def checked_duration(ns: int) -> Duration:
    """Return a duration, given in nanoseconds.

    :raises EvaluationError: if they do not fit 64 bits
    """
    if not INT_MIN <= ns <= INT_MAX:
        raise EvaluationError("a duration has 64 bits of nanoseconds, about 292 years")
    return Duration(ns)


def of_datetime(instant: datetime) -> Timestamp:
    """Return an aware datetime as a timestamp."""
    since = instant - EPOCH
    return Timestamp((since.days * 86_400 + since.seconds) * NS + since.microseconds * 1000)


def to_datetime(timestamp: Timestamp) -> datetime:
    """Return a timestamp as a datetime in UTC, truncated to microseconds."""
    return EPOCH + timedelta(seconds=timestamp.ns // NS, microseconds=timestamp.ns % NS // 1000)


def read_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 timestamp. A leap second is read as the second after it.

    :raises EvaluationError: if the text is not a timestamp
    """
    match = _RFC3339.fullmatch(text) if len(text) <= CHARS_MAX else None
    bad = EvaluationError(f"{show_value(text)} is no timestamp; one is written like 2024-01-15T09:30:00Z")
    if match is None:
        raise bad
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, off_hours, off_minutes = match.groups()[6:]
    try:
        start = datetime(year, month, day, hour, minute, 0, tzinfo=UTC)
    except ValueError:
        raise bad from None
    if second > 60 or (sign and (int(off_hours) > 23 or int(off_minutes) > 59)):
        raise bad
    since = start - EPOCH
    seconds = since.days * 86_400 + since.seconds + second
    if sign:
        offset = int(off_hours) * 3600 + int(off_minutes) * 60
        seconds -= offset if sign == "+" else -offset
    return checked_timestamp(seconds * NS + int((fraction or "0").ljust(9, "0")))


def timestamp_text(timestamp: Timestamp) -> str:
    """Write a timestamp as RFC 3339 in UTC, with as many digits of the second as needed."""
    whole = EPOCH + timedelta(seconds=timestamp.ns // NS)
    return f"{whole.year:04}-{whole:%m-%dT%H:%M:%S}{_fraction(timestamp.ns % NS)}Z"


def _fraction(ns: int) -> str:
    return f".{ns:09}".rstrip("0") if ns else ""


def read_duration(text: str) -> Duration:
    """Parse a duration such as ``1h30m`` or ``-1.5s``.

    :raises EvaluationError: if the text is not a duration
    """
    sign = -1 if text[:1] == "-" else 1
    body = text[1:] if text[:1] in ("-", "+") else text
    at = ns = 0
    if len(text) > CHARS_MAX:
        raise EvaluationError(f"{show_value(text)} is no duration: it has more than {CHARS_MAX} characters")
    while (match := _DURATION_PART.match(body, at)) and len(match[1]) <= DIGITS_MAX:
        ns += _scale_number(match[1], _UNITS[match[2]])
        at = match.end()
    if body != "0" and (at < len(body) or not body):
        raise EvaluationError(f"{show_value(text)} is no duration; one is written like 1h30m, 90s or 500ms")
    return checked_duration(sign * ns)


def _scale_number(number: str, unit: int) -> int:
    whole, _, fraction = number.replace(",", ".").partition(".")
    return int(whole or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)


def seconds_text(duration: Duration) -> str:
    """Write a duration in seconds: ``5400s``, ``-0.5s``."""
    sign = "-" if duration.ns < 0 else ""
    return f"{sign}{abs(duration.ns) // NS}{_fraction(abs(duration.ns) % NS)}s"


def iso8601_text(duration: Duration) -> str:
    """Write a duration as ISO 8601 with hours as the largest unit: ``PT26H``, ``PT0.5S``, ``-PT30S``, ``PT0S``."""
    seconds, ns = divmod(abs(duration.ns), NS)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes)
    if seconds or ns or not parts:
        parts += f"{seconds}{_fraction(ns)}S"
    return f"{'-' * (duration.ns < 0)}PT{parts}"


_ISO_UNITS = (7 * 86_400 * NS, 365 * 86_400 * NS, 30 * 86_400 * NS, 86_400 * NS, 3600 * NS, 60 * NS, NS)


def read_iso8601(text: str) -> Duration:
    """Parse an ISO 8601 duration with an optional sign. The smallest unit may have a fraction.

    Years and months count as 365 and 30 days.

    :raises EvaluationError: if the text is not a duration
    """
    match = _ISO.fullmatch(text) if len(text) <= CHARS_MAX else None
    numbers = match.groups()[1:] if match else ()
    given = [number for number in numbers if number]
    fractional = any("." in number or "," in number for number in given[:-1])
    if match is None or not given or fractional or any(len(number) > DIGITS_MAX for number in given):
        raise EvaluationError(f"{show_value(text)} is no ISO 8601 duration; one is written like PT30S, PT1H30M or P1D")
    ns = sum(_scale_number(number, unit) for number, unit in zip(numbers, _ISO_UNITS, strict=True) if number)
    return checked_duration(-ns if match[1] == "-" else ns)
