"""Waits for a provider: how a turn's failure says that its run asks again later, and when. Pure.

A provider may ask for a wait that is too long for a turn, such as an hour until a quota is renewed. The worker that
made the request decides whether a run waits that long, and records the instant in the failure; the interpreter reads it
there.
"""

import datetime as dt
from typing import Any, cast

from callboard.bus.effects import Failure

RETRY_AFTER = "retry_after_s"
"""The member of a failure's details that says for how many seconds the provider asks to wait."""

RESUME_AT = "resume_at"
"""The member that says when the run is to ask again: it has agreed to wait."""


def resume_at(failure: Failure) -> dt.datetime | None:
    """Return when a turn that failed is to be asked again, None if it is not."""
    said = failure.details.get(RESUME_AT) if isinstance(failure.details, dict) else None
    try:
        at = dt.datetime.fromisoformat(said) if isinstance(said, str) else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo is not None else None


def asked_s(failure: Failure) -> float | None:
    """Return for how many seconds the provider asks to wait, None if it does not."""
    details = cast("dict[str, Any]", failure.details) if isinstance(failure.details, dict) else {}
    asked = details.get(RETRY_AFTER)
    return float(asked) if isinstance(asked, int | float) and not isinstance(asked, bool) else None
