"""Agreed waits: decides whether a run waits on a timer because a provider asks for it, or its turn fails."""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from callboard.bus.effects import Failure
from callboard.bus.model_waits import RESUME_AT, asked_s

WAIT_MAX_S = 6 * 3600.0
"""The longest wait that a run makes for a provider, in seconds, unless the worker is configured otherwise."""

SPREAD = 0.1
SPREAD_MAX_S = 60.0
"""Runs with the same wait ask again within this part of the wait after its end, and at most this long after it."""


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class WaitPolicy(Struct, frozen=True):
    """A worker's policy: waits of at most ``max_s`` seconds are made, by the run's ``clock``."""

    max_s: float = WAIT_MAX_S
    clock: Callable[[], dt.datetime] = _utc_now

    def with_wait(self, failure: Failure) -> Failure:
        """Return the failure of a turn with the instant at which the run asks again, if the provider asks for a wait
        that is made; else with the reason why it is not made."""
        asked = asked_s(failure)
        if asked is None:
            return failure
        details = cast("dict[str, Any]", failure.details)
        if asked > self.max_s:
            why = f"runs here wait at most {self.max_s:g} s for a provider (model_wait_max_s)"
            return replace(failure, message=f"{failure.message}; {why}")
        wait = asked + random.random() * min(asked * SPREAD, SPREAD_MAX_S)
        at = self.clock() + dt.timedelta(seconds=wait)
        return replace(failure, details={**details, RESUME_AT: at.isoformat(timespec="milliseconds")})
