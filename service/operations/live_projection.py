"""Projections over many runs that follow the log, and are up to date whenever they are read."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
import msgspec
import structlog
from anyio import to_thread

from callboard.bus.events import Event
from callboard.bus.log.port import NoAnswer, whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.newest import LOOK_AGAIN_S, NewMessages
from callboard.lib.concurrency import background_tasks
from callboard.projections.projection import Projection, fold

logger = structlog.get_logger(__name__)

CATCH_UP_WAIT_S = 60.0
"""How long a reader waits for the projection to catch up with the log."""

TOGETHER = 64
"""Events that are folded before other tasks get a turn."""

APART_EVENTS = 500
"""Runs with at least this number of events are folded in a thread, so that the event loop can answer other requests."""

FOLDS_AT_ONCE = 2
"""Runs that are folded in threads concurrently; more threads would only wait for each other."""

V = TypeVar("V")

P = TypeVar("P", bound=Projection[Any])


class LiveProjection(Generic[P]):
    """A projection of all events in the log that match the filters."""

    def __init__(self, log: JetStreamLog, filters: Sequence[str], projection: P) -> None:
        self._log = log
        self._filters = filters
        self._projection = projection
        self._news = NewMessages(log, filters)
        self._sequence, self._awaited = 0, 0
        self._taken = 0
        self._grown = anyio.Event()
        self._scope = anyio.CancelScope()
        self.failed = False

    async def run(self) -> None:
        """Fold the events of the log, and the new ones as they arrive, until cancelled."""
        try:
            with self._scope:
                async with self._log.follow(self._filters, 0) as feed:
                    async for recorded in feed:
                        await self._take(recorded)
        except Exception:
            # The next reader starts a new projection.
            logger.exception("listing failed", filters=self._filters)
            self.give_up()

    def give_up(self) -> None:
        """Stop folding, and wake all waiting readers."""
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
        """Wait until the projection contains every event that the log has now, and return it. It keeps following.

        :raises NoAnswer: if the log does not answer, or the projection cannot catch up in time
        """
        if not await self._news.behind(self._sequence):
            return self._projection
        last = await self._news.last()
        with anyio.move_on_after(CATCH_UP_WAIT_S):
            while self._sequence < last and not self.failed:
                # The lowest awaited sequence wakes all readers; those that need a higher one wait again.
                self._awaited = min(self._awaited, last) if self._awaited > self._sequence else last
                before = self._sequence
                with anyio.move_on_after(LOOK_AGAIN_S) as waited:
                    await self._grown.wait()
                if waited.cancelled_caught and self._sequence == before:
                    last = min(last, await self._news.last())
        if self._sequence < last:
            raise NoAnswer(f"the listing has read the stream up to sequence {self._sequence} of {last}")
        return self._projection


class Folding:
    """Folds whole runs, large ones in a few threads."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(FOLDS_AT_ONCE)

    async def fold(self, projection: Projection[V], events: Sequence[Event]) -> V:
        """Return the view of a run's events."""
        if len(events) < APART_EVENTS:
            return fold(projection, events)
        return await to_thread.run_sync(fold, projection, events, limiter=self._limiter)


async def fold_once(log: JetStreamLog, filters: Sequence[str], projection: Projection[V]) -> V:
    """Fold the events in the log that match the filters, once, and return the view.

    :raises NoAnswer: if the log does not answer, or the events cannot be folded
    """
    kept = LiveProjection(log, filters, projection)
    async with background_tasks() as tasks:
        tasks.start_soon(kept.run)
        await kept.caught_up()
    return projection.view()


async def _apply(projection: Projection[Any], log: JetStreamLog, recorded: Recorded) -> None:
    try:
        projection.apply(recorded.event)
    except msgspec.ValidationError:
        # A member that the projection needs is stored apart from the event. That is rare, so it is fetched only now.
        projection.apply(await whole(log, recorded))
