"""The listing of runs: one row per run, folded over many runs from their ``run.*`` events alone.

Other events are skipped without reading them, so that a follower may subscribe only to ``run.>`` of every run.
``cancel.requested`` is used if it arrives, but not required. The results projection shows the waits of runs that are
not parked.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import ModelUsage
from callboard.bus.errors import LogUnreadable
from callboard.bus.events import Event, Payload
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.prices import Cost, Prices, list_prices
from callboard.lib.json_decoder import decoder
from callboard.projections.lists.where import Where, terms
from callboard.projections.projection import known_payload
from callboard.projections.run.attributes import Values, attributes
from callboard.projections.run.status import RunStatus
from callboard.projections.run.warnings import codes

RowStatus = Literal[RunStatus, "waiting"]
"""The statuses of the results projection, and ``waiting`` for a parked run whose event does not say for what, as in old
logs."""


STATUSES: list[RowStatus] = [*get_args(RunStatus), "waiting"]

AT_WORK: tuple[RowStatus, ...] = ("running", "paused")
"""The statuses in the list of runs that are not parked. They may be waiting for something, or about to end."""

TOLD_BY_EVENTS = {
    status
    for status in STATUSES
    if status in (*AT_WORK, "cancelling") or (status.startswith("waiting") and status != "waiting:code")
}
"""The statuses that a run in progress can have."""

WORDS_MAX = 10_000
"""The maximum number of shared texts: names of definitions, hashes and workers."""

_STATUSES: dict[str, RowStatus] = {status: status for status in get_args(RunStatus)}


class RunRow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run. If it is parked, ``awaits`` has the keys that it waits for, ``deadline`` the time of its next timer,
    and ``waits_for`` the models whose providers have postponed turns.

    The ``status`` of a run that is not parked is coarse: only its own events show whether it waits or is being
    cancelled. ``error`` is the code of the failure that ended it. ``warnings`` are the codes of its warnings; those of
    its nodes are included when it has ended. ``duration_s`` (from its start), ``tokens`` and ``models`` (the usage by
    model, with its children) are known when it has ended. ``cost`` is computed with the prices of the reader.

    ``tags`` are those of its start. ``attributes`` are the values at the paths that its start names
    (`callboard.projections.run.attributes`). ``origin`` is the run that it is a fork of, and ``parted_at`` the last
    event that they share; tokens, cost and duration cover later events. ``parent`` is the run that started it as a
    child, and ``children`` the number of runs that it started itself. ``encryption_key`` is the name of the key that
    encrypts it. ``by`` is the name of who started it.
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
    waits_for: str = ""
    duration_s: float | None = None
    tokens: int = 0
    models: list[ModelUsage] = []
    cost: Cost | None = None
    tags: dict[str, str] = {}
    attributes: dict[str, Values] = {}
    origin: str = ""
    parted_at: int = 0
    parent: str = ""
    children: int = 0
    encryption_key: str = ""
    by: str = ""


class _Origin(Struct, frozen=True):
    run: str
    n: int = 0


class _Ref(Struct, frozen=True):
    language: str
    hash: str
    name: str | None = None


class _Attributed(Struct, frozen=True):
    attributes: dict[str, str] = {}
    by: str | None = None


class _Given(Struct, frozen=True):
    input: Any = None
    arguments: Any = None


class _Start(Struct, frozen=True):
    start: _Given


class _Admission(Struct, frozen=True):
    """The members of ``run.accepted`` that a row needs.

    The source, which may be long, is not among them. The input is read separately, if the start names attributes.
    """

    definition: _Ref
    warnings: list[ev.Problem] = []
    tags: dict[str, str] = {}
    encryption_key: str = ""
    forked_from: _Origin | None = None
    start: _Attributed = _Attributed()
    parent: _Origin | None = None


_read = decoder(_Admission).decode
_read_start = decoder(_Start).decode


class RunFold(Struct):
    """One run, folded from its ``run.*`` events: its row, and the state that later events need."""

    row: RunRow
    paused: list[str] = []
    parked: RowStatus | None = None
    cancelling: bool = False
    diverged: RowStatus | None = None
    final: RowStatus | None = None
    paths: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        """Apply the next event of the run, after its first. Events that a fork shares with its origin are skipped."""
        if event.n <= self.row.parted_at:
            return
        payload = (
            known_payload(event) if event.type.startswith("run.") or event.type == ev.CancelRequested.type else None
        )
        if payload is not None:
            _change(self, event, payload)

    def status(self) -> RowStatus:
        if self.final:
            return self.final
        if self.diverged:
            return self.diverged
        if self.cancelling:
            return "cancelling"
        if self.paused:
            return "paused"
        if self.parked:
            return self.parked
        return "running" if self.row.started_at else "accepted"

    def price(self, prices: Prices) -> None:
        """Compute the run's cost if it has ended."""
        if self.row.ended_at is not None and self.row.models:
            self.change(cost=prices.bill(self.row.models, self.row.ended_at).cost)

    def change(self, **fields: Any) -> None:
        self.row = msgspec.structs.replace(self.row, **fields)


def begin_fold(event: Event, word: Callable[[str], str] = str) -> RunFold:
    """Begin the fold of a run with its first event. ``word`` returns one shared copy of a text that many rows have."""
    payload = _read(event.payload)
    ref = payload.definition
    paths = payload.start.attributes
    given = msgspec.structs.asdict(_read_start(event.payload).start) if paths else {}
    row = RunRow(
        run=event.run,
        definition=word(event.definition or ref.name or ref.hash[:12]),
        definition_hash=word(ref.hash),
        language=word(ref.language),
        status="accepted",
        accepted_at=event.time,
        origin=payload.forked_from.run if payload.forked_from is not None else "",
        parted_at=payload.forked_from.n if payload.forked_from is not None else 0,
        parent=payload.parent.run if payload.parent is not None else "",
        warnings=list(dict.fromkeys(warning.code for warning in payload.warnings)),
        tags=payload.tags,
        attributes=attributes(paths, given),
        encryption_key=payload.encryption_key,
        by=word(payload.start.by or ""),
    )
    return RunFold(row, paths=paths)


def begin_without_start(event: Event) -> RunFold:
    """Begin the fold of a run whose first event is missing from the log, with the first event that the log has."""
    row = RunRow(
        run=event.run,
        definition=event.definition,
        definition_hash="",
        language="",
        status="quarantined",
        accepted_at=event.time,
        error=LogUnreadable.CODE,
    )
    return RunFold(row, final="quarantined")


class Runs:
    """Folds many runs, each in its order, into a list, the newest first."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._runs: dict[str, RunFold] = {}
        self._words: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        if event.type == ev.RunAccepted.type:
            self._runs.pop(event.run, None)
            self._runs[event.run] = begin_fold(event, self._word)
        elif (run := self._runs.get(event.run)) is not None:
            run.apply(event)
            if event.type == ev.RunEnd.type:
                run.price(self._prices)
        elif event.n > 1 or event.type == UNREADABLE:
            self._runs[event.run] = begin_without_start(event)

    def view(self) -> list[RunRow]:
        children = Counter(run.row.parent for run in self._runs.values())
        return [
            msgspec.structs.replace(run.row, children=children[run.row.run]) for run in reversed(self._runs.values())
        ]

    def _word(self, word: str) -> str:
        if len(self._words) > WORDS_MAX:
            self._words.clear()
        return self._words.setdefault(word, word)


def _change(run: RunFold, event: Event, payload: Payload) -> None:
    match payload:
        case ev.RunClaimed():
            run.parked = None
            if run.diverged:
                run.diverged = None
                run.change(error=None)
            if run.row.parted_at > 1 and run.row.started_at is None:
                # A fork resumes and has no start event, because that is its origin's.
                run.change(started_at=event.time)
            run.change(worker=payload.worker, claims=run.row.claims + 1, awaits=[], deadline=None)
        case ev.RunStart():
            run.change(started_at=event.time)
        case ev.RunParked():
            run.parked = _STATUSES.get(payload.status, "waiting")
            run.change(awaits=payload.awaits, deadline=payload.deadline, waits_for=payload.waits_for)
        case ev.RunPaused():
            run.paused = [*(key for key in run.paused if key != event.key), event.key]
        case ev.RunResumed():
            run.paused = [key for key in run.paused if key != event.key]
        case ev.CancelRequested():
            run.cancelling = True
        case ev.RunDiverged():
            run.diverged = payload.status
            run.change(error=payload.code, awaits=[], deadline=None)
        case ev.RunQuarantined():
            run.final = "quarantined"
            run.change(error=payload.code, awaits=[], deadline=None)
        case ev.RunFailed():
            run.final = "failed"
            run.change(error=payload.error.code)
        case ev.RunEnd():
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
                tokens=_tokens(payload, shares=bool(run.row.origin)),
                models=payload.models,
                attributes={**run.row.attributes, **attributes(run.paths, {"output": payload.output})},
            )
        case _:
            pass
    run.change(status=run.status())


def _tokens(end: ev.RunEnd, *, shares: bool) -> int:
    return sum(one.usage.tokens for one in end.models) if shares else end.usage.tokens


def _seconds(start: dt.datetime | None, end: dt.datetime) -> float | None:
    return (end - start).total_seconds() if start is not None else None


def tests_events(where: Where) -> bool:
    """Whether a search tests statuses that only the events of the runs at work show."""
    return any(test.field == "status" and test.value in TOLD_BY_EVENTS for test in terms(where))
