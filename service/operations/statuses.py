"""The current statuses of listed runs, the same that `show` reports.

The list of runs is folded from ``run.*`` events alone. They are enough for runs that are parked or have ended. For the
runs at work, which are few, the events of each run are read: all of them once, and later only the new ones.
Forks whose shared events are not in the log (orphans) cannot be read, so lists of runs omit them.
"""

from collections import OrderedDict
from collections.abc import Sequence

import anyio
import msgspec
from msgspec import Struct, field

from callboard.bus.events import RunAccepted
from callboard.bus.log.forks import origin_of
from callboard.bus.log.port import NoAnswer, whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef, is_name
from callboard.lib.concurrency import side_by_side
from callboard.projections.lists.runs import AT_WORK, RowStatus, RunRow
from callboard.projections.projection import known_payload
from callboard.projections.run.status import RunStatus, StatusFold

KEPT_MAX = 10_000
"""Runs whose status is kept in memory; the least recently used one is dropped first."""

READ_AT_ONCE = 16
"""Runs that are read concurrently."""


class _Known(Struct):
    """A run's status up to the last event that was read. The task that reads further events holds the lock."""

    fold: StatusFold = field(default_factory=StatusFold)
    sequence: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Statuses:
    """The statuses of runs at work, each folded from its own events. Those of recently requested runs are kept."""

    def __init__(self, log: JetStreamLog, kept_max: int = KEPT_MAX) -> None:
        self._log = log
        self._kept_max = kept_max
        self._kept: OrderedDict[RunRef, _Known] = OrderedDict()

    async def update_rows(self, tenant: str, rows: Sequence[RunRow]) -> list[RunRow]:
        """Return the rows with the current status of each run at work.

        :raises NoAnswer: if the log does not answer
        """
        now = await self.all(tenant, [row.run for row in rows if row.status in AT_WORK and not row.awaits])
        return [msgspec.structs.replace(row, status=now.get(row.run, row.status)) for row in rows]

    async def all(self, tenant: str, runs: Sequence[str]) -> dict[str, RowStatus]:
        """Return the current status of each run. Raises as `update_rows`."""
        found = await side_by_side([RunRef(tenant, run) for run in runs], self._read_status, READ_AT_ONCE)
        return {run: status for run, status in zip(runs, found, strict=True) if status is not None}

    async def _read_status(self, ref: RunRef) -> RowStatus | None:
        """Return a run's current status, or None if the run cannot be read because it is an orphan."""
        try:
            return await self.of(ref)
        except UNREADABLE:
            if not await is_orphan(self._log, ref):
                raise
            return None

    async def of(self, ref: RunRef) -> RunStatus:
        """Return a run's current status.

        :raises NoAnswer: if the log does not answer
        """
        known_run = self._kept.setdefault(ref, _Known())
        self._kept.move_to_end(ref)
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        async with known_run.lock:
            for recorded in await self._log.read(ref, known_run.sequence):
                event = recorded.event
                if event.n == 1:
                    # The first event of this run, or of a later run with the same id.
                    known_run.fold = StatusFold()
                try:
                    payload = known_payload(event)
                except msgspec.ValidationError:
                    # A member that the fold needs is stored apart from the event; that is rare.
                    event = await whole(self._log, recorded)
                    payload = known_payload(event)
                if payload is not None:
                    known_run.fold.apply(event, payload)
                known_run.sequence = recorded.sequence
            return known_run.fold.status


UNREADABLE = (NoAnswer, ValueError)
"""The exceptions that reading an orphan raises: its origin is missing or has an invalid name."""


async def is_orphan(log: JetStreamLog, ref: RunRef) -> bool:
    """Whether a run is a fork that lacks shared events of its origin, or of a further origin.

    A client may publish any first event, even one whose origin has an invalid name or is the fork itself.

    :raises NoAnswer: if the log does not answer
    """
    seen = {ref}
    needed = 0
    while True:
        last = await log.last(ref)
        if last is None or last.event.n < needed:
            return True
        first = await log.last_of_type(ref, RunAccepted.type)
        forked = origin_of(await whole(log, first)) if first is not None else None
        if forked is None:
            return False
        ref, needed = RunRef(ref.tenant, forked.run), forked.n
        if ref in seen or not is_name(forked.run):
            return True
        seen.add(ref)
