"""Waits for a provider: the members of a turn's failure that say when the run repeats the turn. Pure.

A provider may ask for a wait that is too long for a turn, such as an hour until a quota is renewed. The worker that
sent the request decides whether the run waits that long, and records the instant in the failure. The interpreter reads
it from there.
"""

import datetime as dt
from typing import Any, cast

from callboard.bus.effects import Failure

RETRY_AFTER = "retry_after_s"
"""Member of a failure's details: the number of seconds that the provider asks to wait."""

RESUME_AT = "resume_at"
"""Member of a failure's details: when the run repeats the turn, if it waits."""


def resume_at(failure: Failure) -> dt.datetime | None:
    """Return when a failed turn is to be repeated, None if it is not."""
    said = failure.details.get(RESUME_AT) if isinstance(failure.details, dict) else None
    try:
        at = dt.datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo is not None else None


def asked_s(failure: Failure) -> float | None:
    """Return how many seconds the provider asks to wait, None if it does not."""
    details = cast("dict[str, Any]", failure.details) if isinstance(failure.details, dict) else {}
    asked = details.get(RETRY_AFTER)
    return float(asked) if isinstance(asked, int | float) and not isinstance(asked, bool) else None
