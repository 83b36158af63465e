"""Durations in ISO 8601, as providers read them from checked arguments and write them."""

import re

_PART = re.compile(r"(T)?([0-9]+(?:[.,][0-9]+)?)([YMWDHS])")
_DATE_S = {"Y": 365 * 86_400.0, "M": 30 * 86_400.0, "W": 7 * 86_400.0, "D": 86_400.0}
_TIME_S = {"H": 3_600.0, "M": 60.0, "S": 1.0}


def seconds_of(duration: str) -> float:
    """Return the length of a duration in seconds, a year counted as 365 days and a month as 30."""
    date, _, time = duration.partition("T")
    total = 0.0
    for part, sizes in ((date, _DATE_S), (time, _TIME_S)):
        total += sum(float(number.replace(",", ".")) * sizes[unit] for _, number, unit in _PART.findall(part))
    return -total if duration.startswith("-") else total


def duration_text(seconds: float) -> str:
    """Return a number of seconds as a duration."""
    return f"PT{seconds:.3f}".rstrip("0").rstrip(".") + "S"
