"""The origin and the end of a run, read from its first and last events."""

from collections.abc import Sequence

from msgspec import Struct

from callboard.bus.events import Event, ForkedFrom, RunClaimed, RunDiverged, RunEnd, RunQuarantined, payload_of
from callboard.lib.json_decoder import decode_json
from callboard.projections.trace.columns import Row
from callboard.surfaces.http.shapes import Ending, ForkedAt, Origin

_ENDING = frozenset({RunClaimed.type, RunDiverged.type, RunEnd.type, RunQuarantined.type})
"""Types of events that may be the end of a run. A claim is among them because it ends a divergence."""


class _Definition(Struct, frozen=True):
    language: str = ""
    hash: str = ""


class _Parent(Struct, frozen=True):
    run: str


class _Scheduled(Struct, frozen=True):
    schedule: str = ""


class _Start(Struct, frozen=True):
    """The used members of an admitted start. It may be of another version, so no other member is decoded."""

    scheduled: _Scheduled | None = None


class _Accepted(Struct, frozen=True):
    """The members of a first event that describe the origin. To decode the whole event would take longer than to build
    a page of the index."""

    definition: _Definition = _Definition()
    start: _Start = _Start()
    parent: _Parent | None = None
    forked_from: ForkedFrom | None = None


def read_origin(first: Event) -> Origin:
    """Return the origin of a run, from its first event."""
    told = decode_json(first.payload, type=_Accepted)
    forked, scheduled = told.forked_from, told.start.scheduled
    return Origin(
        language=told.definition.language,
        definition_hash=told.definition.hash,
        parent=told.parent.run if told.parent is not None else None,
        schedule=scheduled.schedule if scheduled is not None else None,
        forked_from=ForkedAt(forked.run, forked.n) if forked is not None else None,
    )


def read_ending(rows: Sequence[Row]) -> Ending | None:
    """Return how a run ended, diverged or was quarantined according to the last such event; None without one."""
    for row in reversed(rows):
        payload = payload_of(row.event) if row.event.type in _ENDING else None
        if isinstance(payload, RunClaimed):
            return None
        if isinstance(payload, RunQuarantined | RunDiverged):
            return Ending(payload.code, payload.message, 0)
        if isinstance(payload, RunEnd):
            error = payload.error
            code, message = (error.code, error.message) if error is not None else (None, "")
            return Ending(code, message, len(payload.warnings))
    return None
