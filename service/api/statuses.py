"""Statuses: the list of runs with the statuses that `show` has too, whatever a run waits for.

The list is folded from ``run.*`` events alone. They say it of runs that are parked or over; of those at work, a bounded
number, their own events are read: all of them once, and then those that have come since.
"""

from collections import OrderedDict
from collections.abc import Sequence

import anyio
import msgspec
from msgspec import Struct, field

from callboard.bus.log.port import whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.lib.concurrency import side_by_side
from callboard.projections.lists.runs import AT_WORK, TOLD_BY_EVENTS, RowStatus, RunRow
from callboard.projections.lists.where import Where, terms
from callboard.projections.projection import known
from callboard.projections.run.status import RunStatus, StatusFold
from callboard.runtime.run.orphans import UNREADABLE, is_orphan

KEPT_MAX = 10_000
"""Runs whose status is kept; that which nobody has asked for the longest goes first."""

READ_AT_ONCE = 16
"""Runs that are read side by side."""


def depends(where: Where) -> bool:
    """Whether it depends on the events of runs at work which runs are wanted."""
    return any(test.field == "status" and test.value in TOLD_BY_EVENTS for test in terms(where))


class _Known(Struct):
    """A run's status as far as its events were read; whoever reads on holds the lock."""

    fold: StatusFold = field(default_factory=StatusFold)
    sequence: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Statuses:
    """The statuses of runs at work, each as its own events have it; of the runs asked for last it is kept."""

    def __init__(self, log: JetStreamLog, kept_max: int = KEPT_MAX) -> None:
        self._log = log
        self._kept_max = kept_max
        self._kept: OrderedDict[RunRef, _Known] = OrderedDict()

    async def told(self, tenant: str, rows: Sequence[RunRow]) -> list[RunRow]:
        """Return rows with the status of each run at work as it is now.

        :raises NoAnswer: if the log does not answer
        """
        now = await self.all(tenant, [row.run for row in rows if row.status in AT_WORK and not row.awaits])
        return [msgspec.structs.replace(row, status=now.get(row.run, row.status)) for row in rows]

    async def all(self, tenant: str, runs: Sequence[str]) -> dict[str, RowStatus]:
        """Return the status of each run now. Raises as `told`."""
        found = await side_by_side([RunRef(tenant, run) for run in runs], self._seen, READ_AT_ONCE)
        return {run: status for run, status in zip(runs, found, strict=True) if status is not None}

    async def _seen(self, ref: RunRef) -> RowStatus | None:
        """A run's status now; None if nobody can perform it: it stands as its own events say."""
        try:
            return await self.of(ref)
        except UNREADABLE:
            if not await is_orphan(self._log, ref):
                raise
            return None

    async def of(self, ref: RunRef) -> RunStatus:
        """Return a run's status now.

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
                    # Its beginning, or that of another run under its id.
                    known_run.fold = StatusFold()
                try:
                    payload = known(event)
                except msgspec.ValidationError:
                    # A member that this needs is stored beside the event; few have any.
                    event = await whole(self._log, recorded)
                    payload = known(event)
                if payload is not None:
                    known_run.fold.apply(event, payload)
                known_run.sequence = recorded.sequence
            return known_run.fold.status
