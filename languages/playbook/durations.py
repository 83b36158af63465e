"""Durations as a start may write them: seconds, or ISO 8601 in weeks, days, hours, minutes and seconds."""

import re

_ISO = re.compile(
    r"P(?=[\dT])(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
_SECONDS = (7 * 86_400, 86_400, 3_600, 60, 1)


def seconds_of(written: str) -> float | None:
    """Return the length of an ISO 8601 duration in seconds; None if the text is none. Months and years are none."""
    match = _ISO.fullmatch(written)
    if match is None:
        return None
    return sum(float(number) * unit for number, unit in zip(match.groups(), _SECONDS, strict=True) if number)
