"""Where a run comes from and what it came to, as its first event and its last one say."""

from collections.abc import Sequence

from msgspec import Struct

from callboard.bus.events import Event, ForkedFrom, RunClaimed, RunDiverged, RunEnd, RunQuarantined, payload_of
from callboard.lib.json_decoder import decode_json
from callboard.projections.trace.columns import Row
from callboard.surfaces.http.shapes import Ending, ForkedAt, Origin

_ENDING = frozenset({RunClaimed.type, RunDiverged.type, RunEnd.type, RunQuarantined.type})
"""A claim is among them because it ends a divergence."""


class _Definition(Struct, frozen=True):
    language: str = ""


class _Parent(Struct, frozen=True):
    run: str


class _Scheduled(Struct, frozen=True):
    schedule: str = ""


class _Start(Struct, frozen=True):
    """Of a start as it was admitted, perhaps by another version: no more is asked of it than is told."""

    scheduled: _Scheduled | None = None


class _Accepted(Struct, frozen=True):
    """What a first event says of the origin: to decode all of it takes longer than to make a page of the index."""

    definition: _Definition = _Definition()
    start: _Start = _Start()
    parent: _Parent | None = None
    forked_from: ForkedFrom | None = None


def origin_told(first: Event) -> Origin:
    """Return what the first event of a run says of where it comes from."""
    told = decode_json(first.payload, type=_Accepted)
    forked, scheduled = told.forked_from, told.start.scheduled
    return Origin(
        language=told.definition.language,
        parent=told.parent.run if told.parent is not None else None,
        schedule=scheduled.schedule if scheduled is not None else None,
        forked_from=ForkedAt(forked.run, forked.n) if forked is not None else None,
    )


def ending_told(rows: Sequence[Row]) -> Ending | None:
    """Return what the last of some events says that ends a run, or has it performed no further; None if none does."""
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
