"""Durations as text: ``90s``, ``10m``, ``1h30m``, ``250ms``; or in ISO 8601, ``PT10M``."""

import re

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"

DURATION = rf"^(?:(?:{_NUMBER}(?:ms|s|m|h|d))+|P(?:{_NUMBER}D(?:T(?:{_NUMBER}[HMS])+)?|T(?:{_NUMBER}[HMS])+))$"
"""The pattern of a duration. Months and years are not allowed, because their length varies."""

_PARTS = re.compile(rf"({_NUMBER})(ms|[smhdDHMS])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds_of(duration: str) -> float:
    """Return the seconds of a text that matches `DURATION`."""
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in _PARTS.findall(duration))
