"""A cache of the events of recently read runs.

A run is read from the log once, and later only its new events. Events that the log no longer has are dropped here, too.
The cache is bounded. A run that is larger than `RUN_BYTES_MAX` cannot be read here, only in pages.
"""

import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import count

import anyio
import msgspec

from callboard.bus.errors import LogUnreadable
from callboard.bus.events import Event, RunEnd
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded, is_lost, lost_last
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.prices import Prices
from callboard.bus.subjects import RunRef
from callboard.projections.drawing.state_at import Standings
from callboard.projections.projection import known_payload
from callboard.projections.run.charges import Charges
from callboard.projections.run.failures import RunFailures
from callboard.projections.trace.columns import EventRow
from callboard.projections.trace.keyframes import Keyframes
from callboard.runtime.client.client import UnknownRun, unknown_run
from callboard.service.operations.operation import ApiError

RUN_BYTES_MAX = 256 * 1024 * 1024
"""The largest run that is read as a whole."""

KEPT_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of the cache in bytes; the least recently read run is dropped first."""

EVENT_BYTES = 1_024
"""Memory of an event besides its payload, in bytes."""

READ_EVENTS = 500
READ_BYTES = 8 * 1024 * 1024
"""Maximum number of events per batch, and approximate maximum of their bytes."""


_readings = count()


class History:
    """The events of one run that have been read, without their large values, and keyframes of the run's state."""

    def __init__(self, ref: RunRef, prices: Prices | None) -> None:
        self.ref = ref
        self._prices = prices
        self.lock = anyio.Lock()
        """Held by a reader for one batch at a time, so that other readers do not wait for the whole run."""
        self.folding = anyio.Lock()
        """Held while events are folded from the keyframes on."""
        self.readers = 0
        """Number of readers that use the history now."""
        self._newest = 0
        self._encrypted = False
        self._last_is_lost = False
        self._begin()

    def _begin(self) -> None:
        self.reading = next(_readings)
        """Number of this reading of the log. Results of an earlier reading may be out of date."""
        self.events: list[Event] = []
        self.rows: list[EventRow] = []
        self.keyframes = Keyframes(partial(Standings, self._prices))
        self._charges = Charges(self._prices)
        self.failures: tuple[int, RunFailures] | None = None
        """The failures up to an event, if they have been asked for."""
        self.size = 0
        self._after = 0

    @property
    def last(self) -> int:
        """The number of the last event. It is not the number of events if some of them cannot be read."""
        return self.events[-1].n if self.events else 0

    @property
    def complete(self) -> bool:
        """Whether all events have been read that the log had when `look` was called."""
        return bool(self.rows) and self._after >= self._newest

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.events[-1].type == RunEnd.type

    async def look(self, log: JetStreamLog) -> None:
        """Look up the last event of the run in the log.

        :raises UnknownRun: if the run does not exist, or has been removed
        """
        last = await log.last(self.ref)
        if last is None:
            raise await unknown_run(log, self.ref)
        if last.encrypted != self._encrypted:
            # The run's key has been destroyed, so the events that were decrypted with it are dropped.
            self._begin()
            self._encrypted = last.encrypted
        newer = bool(self.rows) and last.readable and last.sequence > self.rows[-1].sequence
        if newer and (self.has_ended or last.event.n <= self.last):
            # The run was removed, and another was started with its id.
            self._begin()
        self._last_is_lost = is_lost(last)
        self._newest = sys.maxsize if self._last_is_lost else last.sequence

    def reaches(self, until: int | None) -> bool:
        """Whether all events up to ``until`` have been read, or else all that the log had when `look` was called."""
        if until is not None and self.last >= until:
            return True
        return self.complete

    async def grow(self, log: JetStreamLog) -> bool:
        """Read one more batch of events. Return whether there may be more.

        :raises ApiError: ``api.too_large``
        """
        found = await log.read(self.ref, self._after, READ_EVENTS, READ_BYTES)
        for recorded in found:
            if recorded.readable:
                await self._take(log, recorded)
            self._after = recorded.sequence
        if not found and self._last_is_lost:
            self._newest = self._after
            if self.events and self.events[-1].type != UNREADABLE:
                await self._take(log, lost_last(self.ref, self.last + 1, self._after))
        if self.size > RUN_BYTES_MAX:
            message = f"the run has more than {RUN_BYTES_MAX} bytes"
            raise ApiError(413, "api.too_large", message, expected="to be read in pages, by /events")
        return bool(found)

    async def _take(self, log: JetStreamLog, recorded: Recorded) -> None:
        event = recorded.event
        if event.n == 1 and self.events:
            # The run was removed, and another was started with its id.
            self._begin()
        if event.blobs:
            try:
                known_payload(event)
            except msgspec.ValidationError:
                # A member that the projections need is stored apart from the event.
                event = await whole(log, recorded)
        self.events.append(event)
        self.rows.append(EventRow(recorded.sequence, len(recorded.data), event, self._charges.of(event)))
        self.size += len(event.payload) + EVENT_BYTES


class Histories:
    """The histories of one tenant's runs."""

    def __init__(self, log: JetStreamLog, tenant: str, prices: Prices | None = None) -> None:
        self._log = log
        self._prices = prices
        self._tenant = tenant
        self._kept: OrderedDict[str, History] = OrderedDict()

    async def of(self, run: str, until: int | None = None) -> History:
        """Return a run's history, read at least up to event ``until``, or by default up to the last event.

        :raises UnknownRun: if the run does not exist, or has been removed
        :raises ApiError: ``api.too_large``
        """
        history = self._kept.setdefault(run, History(RunRef(self._tenant, run), self._prices))
        self._kept.move_to_end(run)
        history.readers += 1
        try:
            await self._read(history, until)
        except (ApiError, UnknownRun):
            self._kept.pop(run, None)
            raise
        finally:
            history.readers -= 1
            self._make_room()
        if not history.events:
            self._kept.pop(run, None)
            raise await unknown_run(self._log, history.ref)
        return history

    async def _read(self, history: History, until: int | None) -> None:
        async with history.lock:
            await history.look(self._log)
        more = True
        while more and not history.reaches(until):
            async with history.lock:
                more = history.reaches(until) or await history.grow(self._log)
            # Other runs are dropped while this one grows, so that the cache only exceeds its bound by runs in use.
            self._make_room()

    @property
    def size(self) -> int:
        """Size of all cached histories in bytes."""
        return sum(history.size for history in self._kept.values())

    def _make_room(self) -> None:
        sizes = self.size
        for run, history in list(self._kept.items()):
            if sizes <= KEPT_BYTES_MAX:
                return
            if not history.readers:
                sizes -= self._kept.pop(run).size


def count_to(events: Sequence[Event], n: int) -> int:
    """Return the number of a run's events up to event ``n``; it is less than ``n`` if some cannot be read.

    :raises ApiError: ``replay.no_event``
    """
    if not 1 <= n <= events[-1].n:
        raise ApiError(404, "replay.no_event", f"the run has no event {n}; the last is {events[-1].n}")
    return bisect_right(events, n, key=lambda event: event.n)


def event_at(events: Sequence[Event], n: int) -> Event:
    """Return the event with a number.

    :raises ApiError: ``replay.no_event``, or ``log.unreadable`` if it cannot be read
    """
    count = count_to(events, n)
    if not count or events[count - 1].n != n:
        raise ApiError(409, LogUnreadable.CODE, f"event {n} of the run cannot be read", run_id=events[0].run)
    return events[count - 1]
