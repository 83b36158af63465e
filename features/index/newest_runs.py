"""The newest runs of a tenant, read from the end of the log backwards, for as long as there is no index."""

from collections.abc import Callable
from typing import TypeVar

from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import decode_recorded
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import direct_get
from callboard.bus.nats.purge import decode_mark
from callboard.bus.nats.stored_messages import READ_BATCH, READ_BYTES_MAX
from callboard.bus.prices import Prices
from callboard.features.index.store import IndexedEvent, PurgedRun, RunIndex

WINDOW = 2_000
"""The number of messages of the stream in the first window. Each further one has twice as many."""

EVENTS_MAX = 20_000
"""The maximum number of events to read. If they do not suffice, an index has to be built."""

T = TypeVar("T")


class NewestRuns:
    """The runs that the log has from a place on, as an index in memory, which grows towards the log's beginning."""

    def __init__(self, log: JetStreamLog, tenant: str, prices: Prices, end: int) -> None:
        self._log = log.without_keys()
        self._tenant = tenant
        self._prices = prices
        self._end = end
        self._begin = end + 1
        self._width = WINDOW
        self._taken: list[IndexedEvent | PurgedRun] = []
        self.index = self._fold()

    @property
    def is_whole(self) -> bool:
        """Whether all runs of the log are in the index."""
        return self._begin == 1

    async def grow(self) -> bool:
        """Read the next window of the log; return False if the log is read, or has too many events.

        :raises NoAnswer: if the log does not answer
        """
        begin, width = self._begin, self._width
        if self.is_whole or len(self._taken) >= EVENTS_MAX:
            return False
        self._begin, self._width = max(1, begin - width), 2 * width
        found = [*await self._read(self._begin, begin - 1), *await self._read_marks(self._begin, begin - 1)]
        self._taken = [*sorted(found, key=lambda one: one.sequence), *self._taken]
        self.index.close()
        self.index = self._fold()
        return True

    def _fold(self) -> RunIndex:
        index = RunIndex(None, "", 2 * EVENTS_MAX, self._prices)
        # Runs that were admitted before the window are older than those in it, and are left out.
        index.take(self._taken, self._end)
        return index

    async def _read_marks(self, begin: int, end: int) -> list[PurgedRun]:
        """Return the marks of purged runs in a window. The mark of a run is newer than its events."""
        found, marks = list[PurgedRun](), self._log.subjects.all_gone(self._tenant)
        while begin <= end and (mark := await self._log.next_message(marks, begin)) is not None:
            begin = mark.sequence + 1
            told = decode_mark(self._log, mark.subject, mark.data)
            if told is not None and mark.sequence <= end:
                found.append(PurgedRun(mark.sequence, told.run))
        return found

    async def _read(self, begin: int, end: int) -> list[IndexedEvent]:
        found: list[IndexedEvent] = []
        filter, after, pending = self._log.subjects.events(self._tenant, event_type="run.>"), begin - 1, 1
        while pending and after < end:
            request = {"next_by_subj": filter, "seq": after + 1, "batch": READ_BATCH, "max_bytes": READ_BYTES_MAX}
            messages, pending = await direct_get(self._log.nc, self._log.stream, request)
            if not messages:
                break
            for message in messages:
                headers = message.headers or {}
                subject, after = headers["Nats-Subject"], int(headers["Nats-Sequence"])
                if after > end:
                    break
                ref = self._log.subjects.parse_event(subject).ref
                item = decode_recorded(subject, after, ref, headers.get(MARK, ""), message.data)
                found.append(IndexedEvent(after, await whole(self._log, item)))
        return [one for one in found if one.event.type != UNREADABLE]


async def until_enough(runs: NewestRuns, question: Callable[[RunIndex], T], enough: Callable[[T], bool]) -> T | None:
    """Ask about ever more runs until there is enough, or all runs are read; None if that takes too many events.

    :raises NoAnswer: if the log does not answer
    """
    while await runs.grow():
        found = question(runs.index)
        if runs.is_whole or enough(found):
            return found
    return question(runs.index) if runs.is_whole else None
