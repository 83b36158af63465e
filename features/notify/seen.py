"""The state of a run for judging: its open questions, and whether the run matches a query.

A run is read in pages that are dropped after use, since it may have any number of events and bytes.
"""

import datetime as dt
from collections.abc import Sequence
from functools import partial

import msgspec
from anyio import to_thread
from msgspec.structs import replace

from callboard.bus.events import Event
from callboard.bus.log.port import NoAnswer, Reading, Recorded, whole
from callboard.bus.subjects import RunRef
from callboard.features.index.store import RunIndex, Taken
from callboard.projections.lists.runs import tests_events
from callboard.projections.lists.where import Where
from callboard.projections.projection import known_payload
from callboard.projections.run.status import StatusFold

PAGE_EVENTS = 500
PAGE_BYTES = 4 * 1024 * 1024
"""Limits of one page, in events and (approximately) bytes."""


async def told_by(log: Reading, item: Recorded) -> Event:
    """Return an event without its large values, unless a required member is one of them.

    :raises NoAnswer: if the log does not answer
    """
    try:
        known_payload(item.event)
    except msgspec.ValidationError:
        return await whole(log, item)
    return item.event


class Seen:
    """One run, as far as it has been read; ``wanted`` is the query about it. Events after ``until`` are ignored.

    It has to be closed, since it keeps an index of the run for the query.
    """

    def __init__(self, ref: RunRef, wanted: Where | None, until: dt.datetime | None) -> None:
        self._ref = ref
        self._wanted = wanted
        self._until = until
        self._fold = StatusFold()
        self._index = RunIndex(None, "", 1) if wanted is not None else None
        self._last = 0

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()

    @property
    def open(self) -> set[int]:
        """The numbers of the events that opened what is still open."""
        return {each.event.n for each in self._fold.open}

    def matches(self) -> bool:
        """Whether the run matches the query, as in a search of all runs."""
        if self._wanted is None or self._index is None:
            return True
        if tests_events(self._wanted):
            self._index.tell({self._ref.run: self._fold.status})
        return self._index.matching(self._wanted) > 0

    async def read(self, log: Reading, n: int) -> None:
        """Read the run at least up to an event; do nothing if the run has been purged.

        :raises NoAnswer: if the log does not answer, or the answering replica does not have the event yet
        """
        after = 0
        while page := await log.read(self._ref, after, PAGE_EVENTS, PAGE_BYTES):
            after = page[-1].sequence
            await self._take(log, page)
        if self._last < n and await log.last(self._ref) is not None:
            raise NoAnswer(f"event {n} of run {self._ref.run} has not arrived yet")

    async def _take(self, log: Reading, page: Sequence[Recorded]) -> None:
        """Take a page; the large values are loaded one event at a time."""
        together: list[Recorded] = []
        for item in page:
            event = await self._looked_into(log, item)
            together.append(replace(item, event=event))
            if event is not item.event:
                await self._take_together(together)
                together = []
        await self._take_together(together)

    async def _looked_into(self, log: Reading, item: Recorded) -> Event:
        # Queries may look into the large values of these events; few have any.
        if self._index is not None and item.event.type.startswith("run."):
            return await whole(log, item)
        return await told_by(log, item)

    async def _take_together(self, items: Sequence[Recorded]) -> None:
        # In a thread: the event loop is shared, and a run may have many events.
        if items:
            await to_thread.run_sync(partial(self._take_all, items))

    def _take_all(self, items: Sequence[Recorded]) -> None:
        self._last = max(self._last, items[-1].event.n)
        counted = [item for item in items if item.readable and (self._until is None or item.event.time <= self._until)]
        for item in counted:
            payload = known_payload(item.event)
            if payload is not None:
                self._fold.apply(item.event, payload)
        # The events that a fork shares with its origin are not part of its row.
        taken = [Taken(item.sequence, item.event) for item in counted if item.ref == self._ref]
        if self._index is not None and taken:
            self._index.take(taken, taken[-1].sequence)
