"""The listing of runs: one row per run, folded over many runs from their ``run.*`` events alone.

Other events are skipped unread (``cancel.requested`` is taken if it comes, and not missed if it does not), so that a
follower may subscribe to ``run.>`` of every run only. What a run that is not parked waits for is in the results
projection.
"""

import datetime as dt
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from callboard.bus.events import (
    CancelRequested,
    Event,
    Payload,
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


_STATUSES: dict[str, RowStatus] = {status: status for status in get_args(RunStatus)}


class RunRow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run. If it is parked, ``awaits`` names the keys, ``deadline`` the next instant it wakes by itself.

    Of a run at work the ``status`` is coarse: that it waits, or is being cancelled, its own events say.

    ``error`` is the code of the failure it ended with; ``warnings`` are the codes of its warnings, those of its nodes
    once it has ended.
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


class _Run:
    """What is known of one run while it is listed."""

    def __init__(self, row: RunRow) -> None:
        self.row = row
        self.paused: set[str] = set()
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
        self._runs: dict[str, _Run] = {}
        self._newest_max = newest_max

    def apply(self, event: Event) -> None:
        if not event.type.startswith("run.") and event.type != CancelRequested.type:
            return
        payload = known(event)
        if isinstance(payload, RunAccepted):
            self._accept(event, payload)
        elif payload is not None and event.run in self._runs:
            _change(self._runs[event.run], event, payload)

    def view(self) -> list[RunRow]:
        return [run.row for run in reversed(self._runs.values())]

    def row(self, run: str) -> RunRow | None:
        """One run's row; None if it is not listed."""
        known_run = self._runs.get(run)
        return known_run.row if known_run else None

    def _accept(self, event: Event, payload: RunAccepted) -> None:
        ref = payload.definition
        row = RunRow(
            run=event.run,
            definition=event.definition or ref.name or ref.hash[:12],
            definition_hash=ref.hash,
            language=ref.language,
            status="accepted",
            accepted_at=event.time,
            warnings=list(dict.fromkeys(warning.code for warning in payload.warnings)),
        )
        self._runs[event.run] = _Run(row)
        if self._newest_max is not None and len(self._runs) > self._newest_max:
            del self._runs[next(iter(self._runs))]


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
            run.paused.add(event.key)
        case RunResumed():
            run.paused.discard(event.key)
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
            run.change(ended_at=event.time, error=code, warnings=warnings, awaits=[], deadline=None)
        case _:
            pass
    run.change(status=run.status())
