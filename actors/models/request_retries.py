"""Retrying a request to a provider: limited in tries and in time, with the waits that the provider asks for.

The decision is separate from the action: `wait_s` returns how long to wait, `with_retries` waits.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import anyio
import msgspec
import structlog
from msgspec import Struct

from callboard.actors.models.model import NOTHING, ModelTurnFailed, OnRetry, Retrying, unheard
from callboard.actors.models.turn_limits import SPREAD, ProviderLimit
from callboard.bus.effects import Failure, Usage
from callboard.lib.backoff import backoff_s

log = structlog.get_logger(__name__)

LIMITED = "model.rate_limited"
"""The code of a refusal that concerns all turns of a key."""

ASKED_MIN_S = 0.05
"""The shortest wait, in seconds, that counts as a provider's request to wait. A shorter one is made once."""


class RetryPolicy(Struct, frozen=True):
    """How often and how long a turn is tried; seconds, ``total_s`` over all tries and the waits between them.

    A refusal for too many requests with a time to wait does not count among the ``tries_max``, but among the
    ``asked_max``. A wait that is longer than ``asked_max_s`` is not made here.
    """

    tries_max: int = 6
    total_s: float = 900.0
    delay_first_s: float = 0.5
    delay_max_s: float = 30.0
    asked_max: int = 200
    asked_max_s: float = 60.0


class TryFailed(Exception):
    """One try failed. ``again`` says whether another may help. ``after_s`` is how long the provider asks to wait: None
    if it does not ask, 0 for a request that is changed and sent at once. ``usage`` is the usage of the failed try, as
    far as the provider reported it."""

    def __init__(self, failure: Failure, *, again: bool, after_s: float | None = None) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure
        self.again = again
        self.after_s = after_s
        self.usage = NOTHING

    @property
    def is_asked(self) -> bool:
        """Return whether the provider refused the request as one too many, and said when it will accept it."""
        return self.failure.code == LIMITED and self.after_s is not None and self.after_s >= ASKED_MIN_S


class TurnSpending:
    """The usage of the requests of one turn. Each has an entry, including those that fail or are cancelled."""

    def __init__(self) -> None:
        self.requests: list[Usage] = []

    def begin(self) -> None:
        """Start the entry of a request."""
        self.requests.append(NOTHING)

    def report(self, usage: Usage) -> None:
        """Set the usage of the current request so far."""
        if not self.requests:
            self.begin()
        self.requests[-1] = usage

    @property
    def usage(self) -> Usage:
        """The total usage of all requests."""
        return sum(self.requests, NOTHING)

    @property
    def told_apart(self) -> list[Usage]:
        """Return the usage of each request; empty unless more than one has used anything."""
        found = [one for one in self.requests if one.tokens]
        return found if len(found) > 1 else []


def wait_s(policy: RetryPolicy, tries: int, left_s: float, failed: TryFailed, jitter: float) -> float | None:
    """Return how many seconds to wait before the next try, None to give up.

    ``tries`` that count have failed, and ``left_s`` seconds of the total remain. ``jitter`` in [0, 1) spreads the
    adapter's own waits over the upper half of their length, and lengthens those that the provider asks for by up to
    `SPREAD`. A wait that does not fit into the total is not begun.
    """
    if not failed.again or (tries >= policy.tries_max and not failed.is_asked):
        return None
    own = backoff_s(tries, policy.delay_first_s, policy.delay_max_s) * (0.5 + jitter / 2)
    match failed.after_s:
        case None:
            wait = own
        case asked if asked <= 0:
            wait = 0.0
        case asked if asked < ASKED_MIN_S:
            wait = asked if tries == 1 else max(asked, own)
        case asked if asked > policy.asked_max_s:
            return None
        case asked:
            wait = asked * (1 + jitter * SPREAD)
    return wait if wait < left_s else None


Reply = TypeVar("Reply", bound=msgspec.Struct)
"""The reply of a try; its ``tries`` counts the requests, its ``usage`` and ``requests`` have their usage."""


async def with_retries(
    policy: RetryPolicy,
    attempt: Callable[[], Awaitable[Reply]],
    on_retry: OnRetry = unheard,
    *,
    spent: TurnSpending | None = None,
    lane: ProviderLimit | None = None,
    model: str = "",
) -> Reply:
    """Try until there is a reply. Its ``tries`` counts the requests, its ``usage`` is that of all; ``on_retry`` is
    called before each try except the first. An attempt reports its usage to ``spent`` while it runs. The time starts
    when the ``lane`` has a place for the turn.

    :raises ModelTurnFailed: with the last try's failure, or ``model.timeout`` when the total time has passed; its
        details have ``tries``, and ``retry_after_s`` if the provider asked for a wait that is not made here
    """
    turn = _Turn(policy, attempt, on_retry, spent or TurnSpending(), lane or ProviderLimit(), model)
    async with turn.lane.place():
        return await turn.carried_out()


class _Turn(Struct):
    """One turn until its reply."""

    policy: RetryPolicy
    attempt: Callable[[], Awaitable[Any]]
    on_retry: OnRetry
    spent: TurnSpending
    lane: ProviderLimit
    model: str
    counted: int = 0
    """Failed tries that count among those of the policy."""
    last: TryFailed | None = None

    async def carried_out(self) -> Any:
        deadline = anyio.current_time() + self.policy.total_s
        with anyio.CancelScope(deadline=deadline):
            while True:
                try:
                    return await self._try_once()
                except TryFailed as failed:
                    await self._pause(failed, deadline - anyio.current_time())
                except ModelTurnFailed:
                    raise
                except Exception as error:
                    # The traceback belongs to the operator's log. The usage that the provider reported still counts.
                    log.exception("a request to a model failed unexpectedly", model=self.model)
                    raise self._given_up(Failure("internal", f"{type(error).__name__}: {error}")) from error
        raise self._timed_out()

    async def _try_once(self) -> Any:
        gate = self.lane.gate(self.model)
        async with gate.pass_limits():
            self.spent.begin()
            reply: Any = await self.attempt()
        gate.widen()
        self.spent.report(reply.usage)
        told = {"requests": self.spent.told_apart} if hasattr(reply, "requests") else {}
        return msgspec.structs.replace(reply, tries=len(self.spent.requests), usage=self.spent.usage, **told)

    async def _pause(self, failed: TryFailed, left_s: float) -> None:
        """Wait until the turn may be tried again.

        :raises ModelTurnFailed: if it is not tried again
        """
        self.last = failed
        if failed.usage.tokens:
            self.spent.report(failed.usage)
        self.counted += not failed.is_asked
        wait = wait_s(self.policy, max(self.counted, 1), left_s, failed, random.random())
        tries = len(self.spent.requests)
        if wait is None or tries - self.counted > self.policy.asked_max:
            raise self._given_up(_with_wait(failed, self.policy)) from failed
        self.on_retry(Retrying(failed.failure, tries, self.policy.tries_max, wait))
        if failed.failure.code == LIMITED:
            # The turn itself waits at the gate, like the others.
            self.lane.gate(self.model).close(wait)
        else:
            await anyio.sleep(wait)

    def _timed_out(self) -> ModelTurnFailed:
        if self.last is not None and self.last.is_asked:
            return self._given_up(_with_wait(self.last, self.policy))
        tries = len(self.spent.requests)
        message = f"no reply within {self.policy.total_s:g} s, in {tries} tries"
        return self._given_up(Failure("model.timeout", message, retryable=True))

    def _given_up(self, failure: Failure) -> ModelTurnFailed:
        failure = _add_details(failure, tries=len(self.spent.requests))
        return ModelTurnFailed(failure, usage=self.spent.usage, requests=self.spent.told_apart)


def _with_wait(failed: TryFailed, policy: RetryPolicy) -> Failure:
    """Return the failure of a turn that is given up, with the wait that the provider asked for, if it did."""
    failure, asked = failed.failure, failed.after_s
    if not failed.again or asked is None or not (asked > policy.asked_max_s or failed.is_asked):
        return failure
    longer = f", longer than a turn waits for it ({policy.asked_max_s:g} s)" if asked > policy.asked_max_s else ""
    message = f"{failure.message} (the provider asks to wait {asked:g} s{longer})"
    return _add_details(msgspec.structs.replace(failure, message=message), retry_after_s=asked)


def _add_details(failure: Failure, **more: float) -> Failure:
    details = cast("dict[str, Any]", failure.details) if isinstance(failure.details, dict) else {}
    return msgspec.structs.replace(failure, details={**details, **more})
