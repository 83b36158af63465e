"""The listing of runs: one row per run, folded over many runs from their ``run.*`` events alone.

Other events are skipped unread (``cancel.requested`` is taken if it comes, and not missed if it does not), so that a
follower may subscribe to ``run.>`` of every run only. What a run that is not parked waits for is in the results
projection.
"""

import datetime as dt
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Struct

from callboard.bus.events import (
    CancelRequested,
    Event,
    Payload,
    Problem,
    RunAccepted,
    RunClaimed,
    RunEnd,
    RunFailed,
    RunParked,
    RunPaused,
    RunQuarantined,
    RunResumed,
    RunStart,
)
from callboard.projections.projection import known
from callboard.projections.status import RunStatus
from callboard.projections.warned import codes

RowStatus = Literal[RunStatus, "waiting"]
"""The words that the results projection has too; ``waiting`` is said of a run that was parked without saying for what,
as old logs have it."""


CLOCKS_APART = dt.timedelta(minutes=5)
"""How far the clocks of workers may be apart: the list is in the order of the log."""

WORDS_MAX = 10_000
"""Names of definitions, hashes and workers that rows share."""

_STATUSES: dict[str, RowStatus] = {status: status for status in get_args(RunStatus)}


class RunRow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run. If it is parked, ``awaits`` names the keys, ``deadline`` the next instant it wakes by itself.

    Of a run at work the ``status`` is coarse: that it waits, or is being cancelled, its own events say.

    ``error`` is the code of the failure it ended with; ``warnings`` are the codes of its warnings, those of its nodes
    once it has ended; ``duration_s`` (from its beginning) and ``tokens`` are known when it has ended.
    """

    run: str
    definition: str
    definition_hash: str
    language: str
    status: RowStatus
    accepted_at: dt.datetime
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    claims: int = 0
    worker: str = ""
    error: str | None = None
    warnings: list[str] = []
    awaits: list[str] = []
    deadline: dt.datetime | None = None
    duration_s: float | None = None
    tokens: int = 0


class Wanted(NamedTuple):
    """Which rows are wanted: of some statuses, of a definition, accepted at an instant or since, with a text (as
    `str.casefold` has it) in the run's id, its definition or its error code, and accepted before another run. None, and
    an empty text, is any."""

    statuses: frozenset[RowStatus] | None = None
    definition: str | None = None
    since: dt.datetime | None = None
    text: str = ""
    before: str | None = None

    def takes(self, row: RunRow) -> bool:
        """Whether a row is among those, wherever it stands in the list."""
        return (
            (self.statuses is None or row.status in self.statuses)
            and self.definition in (None, row.definition)
            and (self.since is None or row.accepted_at >= self.since)
            and (not self.text or self._says(row))
        )

    def _says(self, row: RunRow) -> bool:
        text = self.text
        found = text in row.run.casefold() or text in row.definition.casefold()
        return found or (row.error is not None and text in row.error.casefold())

    def is_behind(self, row: RunRow) -> bool:
        """Whether a row is so old that no older one is wanted."""
        return self.since is not None and row.accepted_at < self.since - CLOCKS_APART


K = TypeVar("K", bound=str)


class _Ref(Struct, frozen=True):
    language: str
    hash: str
    name: str | None = None


class _Admission(Struct, frozen=True):
    """What a row needs of ``run.accepted``: not the source, which may be long, nor the start."""

    definition: _Ref
    warnings: list[Problem] = []


_read = msgspec.json.Decoder(_Admission).decode


class _Run:
    """What is known of one run while it is listed; ``place`` grows from run to run."""

    __slots__ = ("cancelling", "final", "parked", "paused", "place", "row")

    def __init__(self, row: RunRow, place: int) -> None:
        self.row = row
        self.place = place
        self.paused: set[str] | None = None
        self.parked: RowStatus | None = None
        self.cancelling = False
        self.final: RowStatus | None = None

    def status(self) -> RowStatus:
        if self.final:
            return self.final
        if self.cancelling:
            return "cancelling"
        if self.paused:
            return "paused"
        if self.parked:
            return self.parked
        return "running" if self.row.started_at else "accepted"

    def change(self, **fields: Any) -> None:
        self.row = msgspec.structs.replace(self.row, **fields)


class Runs:
    """Folds many runs, each in its order, into a list, the newest first.

    With ``newest_max`` only that many runs are kept, the last ones accepted; an older one never comes back.
    """

    def __init__(self, newest_max: int | None = None) -> None:
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._at: dict[int, _Run] = {}
        self._first, self._next = 0, 0
        self._of_status: dict[RowStatus, list[int]] = {}
        self._of_definition: dict[str, list[int]] = {}
        self._newest_max = newest_max
        self._words: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        if not event.type.startswith("run.") and event.type != CancelRequested.type:
            return
        if event.type == RunAccepted.type:
            self._accept(event, _read(event.payload))
            return
        payload = known(event)
        if payload is not None and (run := self._runs.get(event.run)) is not None:
            before = run.row.status
            _change(run, event, payload)
            if run.row.status != before:
                _take_out(self._of_status, before, run.place)
                insort(self._of_status.setdefault(run.row.status, []), run.place)

    def view(self) -> list[RunRow]:
        return [run.row for run in reversed(self._runs.values())]

    def row(self, run: str) -> RunRow | None:
        """One run's row; None if it is not listed."""
        known_run = self._runs.get(run)
        return known_run.row if known_run else None

    def counts(self) -> dict[RowStatus, int]:
        """How many runs are listed of each status; of a run at work it is coarse."""
        return {status: len(places) for status, places in self._of_status.items()}

    def select(self, wanted: Wanted) -> Iterator[RunRow]:
        """Yield the rows that are wanted, the newest first; whoever goes on later sees them as they are then.

        :raises KeyError: if ``before`` is not listed
        """
        below = self._next if wanted.before is None else self._runs[wanted.before].place
        return self._select(wanted, below)

    def _select(self, wanted: Wanted, below: int) -> Iterator[RunRow]:
        for place in self._places(wanted, below):
            run = self._at.get(place)
            if run is None:
                continue
            if wanted.is_behind(run.row):
                return
            if wanted.takes(run.row):
                yield run.row

    def _places(self, wanted: Wanted, below: int) -> Iterable[int]:
        """The places where rows that are wanted can be, of as few as there are in one index, the last first."""
        indexes: list[list[list[int]]] = []
        if wanted.statuses is not None:
            indexes.append([self._of_status.get(status, []) for status in wanted.statuses])
        if wanted.definition is not None:
            indexes.append([self._of_definition.get(wanted.definition, [])])
        if not indexes:
            return range(below - 1, self._first - 1, -1)
        fewest = min(indexes, key=lambda lists: sum(map(len, lists)))
        return merge(*(places[: bisect_left(places, below)][::-1] for places in fewest), reverse=True)

    def _accept(self, event: Event, payload: _Admission) -> None:
        if (known_run := self._runs.get(event.run)) is not None:
            self._forget(known_run)
        ref = payload.definition
        row = RunRow(
            run=event.run,
            definition=self._word(event.definition or ref.name or ref.hash[:12]),
            definition_hash=self._word(ref.hash),
            language=self._word(ref.language),
            status="accepted",
            accepted_at=event.time,
            warnings=list(dict.fromkeys(warning.code for warning in payload.warnings)),
        )
        run = self._runs[event.run] = self._at[self._next] = _Run(row, self._next)
        self._next += 1
        self._of_status.setdefault(row.status, []).append(run.place)
        self._of_definition.setdefault(row.definition, []).append(run.place)
        if self._newest_max is not None and len(self._runs) > self._newest_max:
            oldest = next(iter(self._runs.values()))
            self._forget(oldest)
            self._first = oldest.place + 1

    def _forget(self, run: _Run) -> None:
        del self._runs[run.row.run], self._at[run.place]
        _take_out(self._of_status, run.row.status, run.place)
        _take_out(self._of_definition, run.row.definition, run.place)

    def _word(self, word: str) -> str:
        """A word that many rows have, held once."""
        if len(self._words) > WORDS_MAX:
            self._words.clear()
        return self._words.setdefault(word, word)


def _take_out(index: dict[K, list[int]], name: K, place: int) -> None:
    places = index[name]
    del places[bisect_left(places, place)]
    if not places:
        del index[name]


def _change(run: _Run, event: Event, payload: Payload) -> None:
    match payload:
        case RunClaimed():
            run.parked = None
            run.change(worker=payload.worker, claims=run.row.claims + 1, awaits=[], deadline=None)
        case RunStart():
            run.change(started_at=event.time)
        case RunParked():
            run.parked = _STATUSES.get(payload.status, "waiting")
            run.change(awaits=payload.awaits, deadline=payload.deadline)
        case RunPaused():
            run.paused = {*(run.paused or ()), event.key}
        case RunResumed():
            run.paused = {*(run.paused or ())} - {event.key}
        case CancelRequested():
            run.cancelling = True
        case RunQuarantined():
            run.final = "quarantined"
            run.change(error=payload.code, awaits=[], deadline=None)
        case RunFailed():
            run.final = "failed"
            run.change(error=payload.error.code)
        case RunEnd():
            run.final = payload.status
            code = payload.error.code if payload.error else run.row.error
            warnings = codes(payload.warnings) or run.row.warnings
            run.change(
                ended_at=event.time,
                error=code,
                warnings=warnings,
                awaits=[],
                deadline=None,
                duration_s=_seconds(run.row.started_at, event.time),
                tokens=payload.usage.input_tokens + payload.usage.output_tokens,
            )
        case _:
            pass
    run.change(status=run.status())


def _seconds(start: dt.datetime | None, end: dt.datetime) -> float | None:
    return (end - start).total_seconds() if start is not None else None
