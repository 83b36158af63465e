"""Retrying a request to a provider: bounded in tries and in time, honouring what the provider asks for.

Deciding is apart from doing: `wait_s` says how long to wait, `with_retries` waits.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import anyio
import msgspec
from msgspec import Struct

from callboard.actors.models.model import NOTHING, ModelFailed, OnRetry, Retrying, unheard
from callboard.bus.backoff import backoff_s
from callboard.bus.effects import Failure, Usage


class RetryPolicy(Struct, frozen=True):
    """How often and how long a turn is tried; seconds, ``total_s`` over all tries and the waits between them."""

    tries_max: int = 6
    total_s: float = 900.0
    delay_first_s: float = 0.5
    delay_max_s: float = 30.0


class TryFailed(Exception):
    """One try failed. ``again`` says whether another may help, ``after_s`` how long the provider asks to wait,
    ``usage`` what it has cost all the same, as far as the provider has told."""

    def __init__(self, failure: Failure, *, again: bool, after_s: float | None = None) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.again = again
        self.after_s = after_s
        self.usage = NOTHING


def wait_s(policy: RetryPolicy, tries: int, left_s: float, failed: TryFailed, jitter: float) -> float | None:
    """Say how many seconds to wait before the next try, None to give up.

    ``tries`` have failed, ``left_s`` seconds are left of the total; ``jitter`` in [0, 1) spreads waits of the adapter's
    own choosing over the upper half of their length. A wait the total has no room for is not begun.
    """
    if not failed.again or tries >= policy.tries_max:
        return None
    own = backoff_s(tries, policy.delay_first_s, policy.delay_max_s) * (0.5 + jitter / 2)
    wait = own if failed.after_s is None else max(failed.after_s, 0.0)
    return wait if wait < left_s else None


Reply = TypeVar("Reply", bound=msgspec.Struct)
"""What a try comes to; its ``tries`` says how many it took, its ``usage`` what they have cost."""


async def with_retries(
    policy: RetryPolicy, attempt: Callable[[], Awaitable[Reply]], on_retry: OnRetry = unheard
) -> Reply:
    """Try until there is a reply; its ``tries`` counts them, its ``usage`` is that of all; ``on_retry`` is told of each
    but the first.

    :raises ModelFailed: with the last try's failure, or ``model.timeout`` when the total time has passed; its details
        have ``tries``
    """
    deadline = anyio.current_time() + policy.total_s
    tries = 0
    spent = NOTHING
    with anyio.CancelScope(deadline=deadline) as scope:
        while True:
            tries += 1
            try:
                reply = await attempt()
            except TryFailed as failed:
                spent += failed.usage
                wait = wait_s(policy, tries, deadline - anyio.current_time(), failed, random.random())
                if wait is None:
                    raise ModelFailed(_counted(failed.failure, tries), usage=spent) from failed
                on_retry(Retrying(failed.failure, tries, policy.tries_max, wait))
            else:
                used: Usage = cast("Any", reply).usage
                return msgspec.structs.replace(reply, tries=tries, usage=spent + used)
            await anyio.sleep(wait)
    assert scope.cancelled_caught
    message = f"no reply within {policy.total_s:g} s, in {tries} tries"
    raise ModelFailed(Failure("model.timeout", message, details={"tries": tries}, retryable=True), usage=spent)


def _counted(failure: Failure, tries: int) -> Failure:
    details = cast("dict[str, Any]", failure.details) if isinstance(failure.details, dict) else {}
    return msgspec.structs.replace(failure, details={**details, "tries": tries})
