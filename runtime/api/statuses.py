"""Statuses: the list of runs with the statuses that `show` has too, whatever a run waits for.

The list is folded from ``run.*`` events alone. They say it of runs that are parked or over; of those at work, a bounded
number, their own events are read: all of them once, and then those that have come since.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import get_args

import anyio
import msgspec
from anyio import to_thread

from callboard.bus.log import EventLog, whole
from callboard.bus.subjects import RunRef
from callboard.projections.projection import known
from callboard.projections.runs import RowStatus, RunRow, Runs, Wanted
from callboard.projections.status import RunStatus, StatusFold

KEPT_MAX = 1_000
"""Runs whose status is kept; that which nobody has asked for the longest goes first."""

READ_AT_ONCE = 16
"""Runs that are read side by side."""

AT_WORK = ("running", "paused")
"""The list's words for runs that may wait for something, or be about to end, unless they are parked."""


async def chosen(
    log: EventLog, tenant: str, rows: Sequence[RunRow], status: str | None, limit: int
) -> tuple[list[RunRow], int]:
    """Return the first ``limit`` rows of a status as it is now, and how many there are beyond; None is any status.

    ``waiting`` is every status that begins so.

    :raises NoAnswer: if the log does not answer
    """
    if status is None or not any(matches(status, one) for one in _TOLD_BY_EVENTS):
        found = [row for row in rows if matches(status, row.status)]
        return await _told(Statuses(log), tenant, found[:limit]), len(found[limit:])
    found = [row for row in await _told(Statuses(log), tenant, rows) if matches(status, row.status)]
    return found[:limit], len(found[limit:])


async def page(
    statuses: "Statuses", tenant: str, runs: Runs, wanted: Wanted, status: str | None, limit: int
) -> tuple[list[RunRow], bool]:
    """Return the first ``limit`` rows that are wanted, of a status as it is now, and whether there are more.

    :raises KeyError: if ``wanted.before`` is not listed
    :raises NoAnswer: if the log does not answer
    """
    told = status is not None and any(matches(status, one) for one in _TOLD_BY_EVENTS)
    if status is not None:
        words = frozenset(one for one in _ALL if matches(status, one) or (told and one in AT_WORK))
        wanted = wanted._replace(statuses=words)
    rows = runs.select(wanted)
    found: list[RunRow] = []
    while len(found) <= limit:
        # A text is looked for in all rows there are, if need be: not on the loop.
        missing = limit + 1 - len(found)
        more = await to_thread.run_sync(_first, rows, missing) if wanted.text else _first(rows, missing)
        if not more:
            break
        found += [row for row in await _told(statuses, tenant, more) if matches(status, row.status)] if told else more
    return (found if told else await _told(statuses, tenant, found))[:limit], len(found) > limit


def _first(rows: Iterator[RunRow], count: int) -> list[RunRow]:
    return list(islice(rows, count))


def matches(wanted: str | None, status: str) -> bool:
    """Whether a status is the one that is wanted, or one of its kind."""
    return wanted is None or status == wanted or status.startswith(f"{wanted}:")


_ALL: list[RowStatus] = [*get_args(RunStatus), "waiting"]
_TOLD_BY_EVENTS = [status for status in _ALL if status in (*AT_WORK, "cancelling") or status.startswith("waiting")]


async def _told(statuses: "Statuses", tenant: str, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return rows with the status of each run at work as its own events have it."""
    told = list(rows)
    limiter = anyio.CapacityLimiter(READ_AT_ONCE)

    async def tell(place: int, row: RunRow) -> None:
        async with limiter:
            told[place] = msgspec.structs.replace(row, status=await statuses.of(RunRef(tenant, row.run)))

    async with anyio.create_task_group() as tasks:
        for place, row in enumerate(rows):
            if row.status in AT_WORK and not row.awaits:
                tasks.start_soon(tell, place, row)
    return told


@dataclass(slots=True)
class _Known:
    """A run's status as far as its events were read; whoever reads on holds the lock."""

    fold: StatusFold = field(default_factory=StatusFold)
    sequence: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Statuses:
    """The statuses of runs at work, each as its own events have it; of the runs asked for last it is kept."""

    def __init__(self, log: EventLog, kept_max: int = KEPT_MAX) -> None:
        self._log = log
        self._kept_max = kept_max
        self._kept: OrderedDict[RunRef, _Known] = OrderedDict()

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
