"""Folding the events of the log: of many runs once, or of a whole run in a thread."""

from collections.abc import Sequence
from typing import Any, TypeVar

import anyio
import msgspec
from anyio import to_thread

from callboard.bus.events import Event
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded, decrypt_event
from callboard.bus.nats.batches import open_batches, recorded_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.newest import NewMessages
from callboard.projections.projection import Projection, fold

APART_EVENTS = 500
"""Runs with at least this number of events are folded in a thread, so that the event loop can answer other requests."""

FOLDS_AT_ONCE = 2
"""Runs that are folded in threads concurrently; more threads would only wait for each other."""

V = TypeVar("V")


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
    """Fold the events in the log that match the filters, and return the view.

    :raises NoAnswer: if the log does not answer
    """
    end, at, news = await log.last_sequence(), 0, NewMessages(log, filters)
    async with open_batches(log, filters, at) as batches:
        while await news.behind(at, end):
            for message in await batches.read():
                at = message.sequence
                if (recorded := recorded_of(log, message)) is not None:
                    await _apply(projection, log, recorded)
    return projection.view()


async def _apply(projection: Projection[Any], log: JetStreamLog, recorded: Recorded) -> None:
    if recorded.encrypted:
        recorded = await decrypt_event(log.ring, recorded)
    try:
        projection.apply(recorded.event)
    except msgspec.ValidationError:
        # A member that the projection needs is stored apart from the event. That is rare, so it is fetched only now.
        projection.apply(await whole(log, recorded))
