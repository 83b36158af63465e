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

WAIT_SLOT, AGAIN_SLOT = ".wait.", ".again."
"""What follows the key of a turn in the keys of its timers and of its repetitions, before a number."""

WHY_CHARS_MAX = 200
"""How much of a provider's message the description of a wait has."""

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


def turn_of_wait(timer: str) -> str:
    """Return the effect key of the turn that a timer postpones, from the key of the timer; empty for other timers."""
    return timer.rpartition(WAIT_SLOT)[0]


def turn_of_call(call: str) -> str:
    """Return the effect key of a turn, from that of a call or of its repetition after a wait."""
    return call.partition(AGAIN_SLOT)[0]


def describe_wait(model: str, failure: Failure) -> str:
    """Return what a postponed turn waits for: its model, and why the provider has postponed it."""
    why = " ".join(failure.message.split())
    why = why if len(why) <= WHY_CHARS_MAX else f"{why[: WHY_CHARS_MAX - 1]}…"
    return f"{model} ({failure.code}{f': {why}' if why else ''})"
