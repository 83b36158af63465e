"""Keeping: a projection over many runs that follows the log, and answers as of the moment when it is asked."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec
import structlog
from anyio import to_thread

from callboard.bus.events import Event
from callboard.bus.log.port import NoAnswer, Recorded, whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.newest import LOOK_AGAIN_S, News
from callboard.projections.projection import Projection, fold

logger = structlog.get_logger(__name__)

CATCH_UP_WAIT_S = 60.0
"""How long a question waits until the fold has come as far as the log."""

TOGETHER = 64
"""Events that are folded without giving way to others."""

APART_EVENTS = 500
"""Of how many events on a run is folded in a thread, so that others are answered meanwhile."""

FOLDS_AT_ONCE = 2
"""Runs that are folded in threads side by side; more only wait for each other."""

V = TypeVar("V")

P = TypeVar("P", bound=Projection[Any])


class Kept(Generic[P]):
    """A projection of the events that match the filters, from the log's beginning on."""

    def __init__(self, log: JetStreamLog, filters: Sequence[str], projection: P) -> None:
        self._log = log
        self._filters = filters
        self._projection = projection
        self._news = News(log, filters)
        self._sequence, self._awaited = 0, 0
        self._taken = 0
        self._grown = anyio.Event()
        self._scope = anyio.CancelScope()
        self.failed = False

    async def run(self) -> None:
        """Fold until cancelled."""
        try:
            with self._scope:
                async with self._log.follow(self._filters, 0) as feed:
                    async for recorded in feed:
                        await self._take(recorded)
        except Exception:
            # The next question begins anew.
            logger.exception("listing failed", filters=self._filters)
            self.give_up()

    def give_up(self) -> None:
        """Fold no more; whoever waits is told."""
        self._scope.cancel()
        self.failed = True
        self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, anyio.Event()
        grown.set()

    async def _take(self, recorded: Recorded) -> None:
        await _apply(self._projection, self._log, recorded)
        self._sequence = recorded.sequence
        if self._sequence >= self._awaited:
            self._wake()
        self._taken += 1
        if self._taken % TOGETHER == 0:
            await anyio.lowlevel.checkpoint()

    async def caught_up(self) -> P:
        """Return the projection once it has come as far as the log is now; it goes on.

        :raises NoAnswer: if the log does not answer, or the fold does not keep up
        """
        if not await self._news.behind(self._sequence):
            return self._projection
        last = await self._news.last()
        with anyio.move_on_after(CATCH_UP_WAIT_S):
            while self._sequence < last and not self.failed:
                # All are woken by what the first of them waits for, and wait on.
                self._awaited = min(self._awaited, last) if self._awaited > self._sequence else last
                before = self._sequence
                with anyio.move_on_after(LOOK_AGAIN_S) as waited:
                    await self._grown.wait()
                if waited.cancelled_caught and self._sequence == before:
                    last = min(last, await self._news.last())
        if self._sequence < last:
            raise NoAnswer(f"the listing is at {self._sequence} of {last}")
        return self._projection


class Folding:
    """Folds whole runs, a few at once."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(FOLDS_AT_ONCE)

    async def fold(self, projection: Projection[V], events: Sequence[Event]) -> V:
        """Return the view of a run's events."""
        if len(events) < APART_EVENTS:
            return fold(projection, events)
        return await to_thread.run_sync(fold, projection, events, limiter=self._limiter)


async def folded(log: JetStreamLog, filters: Sequence[str], projection: Projection[V]) -> V:
    """Fold the events that match the filters once, those that the log has now.

    :raises NoAnswer: if the log does not answer, or they cannot be folded
    """
    kept = Kept(log, filters, projection)
    failure: NoAnswer | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.run)
        try:
            await kept.caught_up()
        except NoAnswer as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return projection.view()


async def _apply(projection: Projection[Any], log: JetStreamLog, recorded: Recorded) -> None:
    try:
        projection.apply(recorded.event)
    except msgspec.ValidationError:
        # A member that this needs is stored beside the event; few have any, so they are fetched only now.
        projection.apply(await whole(log, recorded))
