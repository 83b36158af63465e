"""Times: milliseconds of the epoch in records, ISO 8601 in outputs of nodes."""

import datetime as dt

from callboard.languages.language import Instant


def ms(instant: Instant) -> int:
    """Return an instant in whole milliseconds of the epoch."""
    return int(instant.timestamp() * 1000)


def iso(instant: Instant) -> str:
    return instant.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def after(instant: Instant, seconds: float) -> Instant:
    """Return the instant ``seconds`` after another, at most `SECONDS_MAX` after it."""
    return instant + dt.timedelta(seconds=max(0.0, min(seconds, SECONDS_MAX)))


def seconds_between(start: Instant, end: Instant) -> float:
    return (end - start).total_seconds()


SECONDS_MAX = 3.2e9
"""The longest wait, about a century, which keeps instants within the range of `datetime`."""
