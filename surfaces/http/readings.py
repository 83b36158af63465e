"""Readings: requests of the page about runs, in addition to the operations of the service.

Runs are read from the log once (`histories`), and folded in a limited number of threads.
"""

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct

from callboard.bus.errors import CallboardError, LogUnreadable
from callboard.bus.events import (
    EffectCall,
    Event,
    ForkedFrom,
    ModelCall,
    ModelResult,
    NodeProgress,
    RunAccepted,
    RunClaimed,
    RunDiverged,
    RunEnd,
    RunQuarantined,
    ToolCall,
    payload_of,
)
from callboard.bus.log.damage import require_sound
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.blobs import BlobTooLarge
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.lib.json_decoder import decode_json
from callboard.projections.comparison.diff import RunDiff, compare_logs
from callboard.projections.drawing.diagram import Direction
from callboard.projections.drawing.executed import diagram_of
from callboard.projections.drawing.geometry import Geometry, geometry, outline_hash
from callboard.projections.drawing.svg import svg
from callboard.projections.projection import fold, known_payload
from callboard.projections.run.failures import FailureFold, RunFailures
from callboard.projections.run.run_result import Results
from callboard.projections.spans.jaeger import jaeger
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.columns import EventRow, columns
from callboard.runtime.client.connection import Connection
from callboard.runtime.interpreter.code import adopted_digest
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.worker.secrets import secrets_of
from callboard.service.operations.model_requests import Seen, reconstruct_request
from callboard.service.operations.operation import ApiError, OperationProvider
from callboard.service.operations.replays import Replayed, replay_events
from callboard.service.operations.requests import Nothing
from callboard.service.operations.stacks import Stacks, stacks_at
from callboard.surfaces.http.answers import Content
from callboard.surfaces.http.histories import Histories, History, count_to, event_at
from callboard.surfaces.http.shapes import (
    INDEX_EVENTS_MAX,
    At,
    Ending,
    ForkedAt,
    Index,
    OneCall,
    OneFile,
    OneGraph,
    OneMoment,
    OnePiece,
    OneRun,
    OneValue,
    Origin,
    TwoRuns,
)
from callboard.surfaces.http.workers import WorkerList, Workers

_ENDING = frozenset({RunClaimed.type, RunDiverged.type, RunEnd.type, RunQuarantined.type})
"""Types of events that may be the end of a run. A claim is among them because it ends a divergence."""


_WITHOUT_FAILURES = frozenset({one.type for one in (EffectCall, ModelCall, ToolCall, RunAccepted, NodeProgress)})
"""Types of events that may be large, and do not say what failed."""


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
    continues: _Parent | None = None


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
        continues=told.continues.run if told.continues is not None else None,
    )


def read_ending(rows: Sequence[EventRow]) -> Ending | None:
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
            successor = payload.successor.run if payload.successor is not None else None
            return Ending(code, message, len(payload.warnings), successor)
    return None


def _failures(events: Sequence[Event]) -> RunFailures:
    failures = FailureFold()
    for event in events:
        if event.type not in _WITHOUT_FAILURES and (payload := known_payload(event)) is not None:
            failures.apply(event, payload)
    return failures.view()


FOLDS_AT_ONCE = 2
"""Folds that are computed concurrently; more threads would only wait for each other."""

PIECES_MAX = 32
"""Maximum number of cached answers of `index`; only answers that cannot change are cached."""

DRAWINGS_MAX = 64
"""Maximum number of cached drawings, by outline and direction."""

BLOB_BYTES_MAX = 64 * 1024 * 1024
"""Size of the largest value that is served."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

R = TypeVar("R")


class Readings(OperationProvider):
    """The readings of the runs of one tenant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._histories = Histories(connection.log, connection.config.tenant, connection.config.price_table())
        self._folding = anyio.CapacityLimiter(FOLDS_AT_ONCE)
        self._pieces: OrderedDict[tuple[int, int, int], Index] = OrderedDict()
        self._workers = Workers(connection.log)
        self._drawings: OrderedDict[tuple[str, Direction], Geometry] = OrderedDict()

    async def geometry(self, tenant: str, asked: OneGraph) -> Geometry:
        """Return the positions of the nodes and edges of a run's definition in a drawing. See `at` for their states."""
        outline = _require_accepted((await self._histories.of(asked.run_id, 1)).events).outline
        key = outline_hash(outline), asked.direction
        if key not in self._drawings:
            self._drawings[key] = await self._run_in_thread(geometry, outline, asked.direction)
            if len(self._drawings) > DRAWINGS_MAX:
                self._drawings.popitem(last=False)
        self._drawings.move_to_end(key)
        return self._drawings[key]

    async def index(self, tenant: str, asked: OnePiece) -> Index:
        """Return the members of a run's events that a list of events shows, as columns."""
        if not 1 <= asked.limit <= INDEX_EVENTS_MAX or asked.after < 0:
            message = f"invalid limit {asked.limit} or after {asked.after}"
            expected = f"limit from 1 to {INDEX_EVENTS_MAX}, after from 0"
            raise ApiError(400, "api.malformed", message, expected=expected)
        history = await self._histories.of(asked.run_id, asked.after + asked.limit + 1)
        # If the log has messages that are not events, the number of an event is not the position of its row.
        begin = bisect_right(history.rows, asked.after, key=lambda row: row.event.n)
        rows = history.rows[begin : begin + asked.limit]
        more = len(history.rows) > begin + len(rows) or not history.complete
        final = more or history.has_ended
        key = history.reading, asked.after, asked.limit
        if final and key in self._pieces:
            self._pieces.move_to_end(key)
            return self._pieces[key]
        found = Index(
            run=asked.run_id,
            definition=history.events[0].definition,
            after=asked.after,
            last=rows[-1].event.n if rows else asked.after,
            count=len(rows),
            more=more,
            ended=history.has_ended,
            origin=read_origin(history.events[0]),
            ending=read_ending(rows),
            **msgspec.structs.asdict(await self._run_in_thread(columns, rows, asked.after)),
        )
        if final:
            self._pieces[key] = found
            if len(self._pieces) > PIECES_MAX:
                self._pieces.popitem(last=False)
        return found

    async def at(self, tenant: str, asked: OneMoment) -> At:
        """Return the state of a run after one of its events: result, status, nodes, and the colours of its diagram.

        Events that cannot be read are skipped. If the given event cannot be read, the state is that before it.
        """
        history = await self._histories.of(asked.run_id)
        last = history.last
        count = count_to(history.events, asked.n or last)
        async with history.folding:
            frame = await self._run_in_thread(history.keyframes.at, history.events, count)
        return At(last=last, **msgspec.structs.asdict(await self._run_in_thread(frame.view)))

    async def failures(self, tenant: str, asked: OneRun) -> RunFailures:
        """Return where the failure arose that ended a run, and how many of its steps failed."""
        history = await self._histories.of(asked.run_id)
        known = history.failures
        if known is None or known[0] != history.last:
            events = list(history.events)
            known = events[-1].n, await self._run_in_thread(_failures, events)
            history.failures = known
        return known[1]

    async def replay(self, tenant: str, asked: OneMoment) -> Replayed:
        """Replay a run's events up to one of them: verify them, and return the effects that are open after that one."""
        ref, events = RunRef(tenant, asked.run_id), await self._read_events(asked.run_id)
        n = event_at(events, asked.n or events[-1].n).n
        await self._run_checked(require_sound, ref, [event for event in events if event.n <= n])
        admission, secrets = await self._admission(events)
        return await self._run_checked(replay_events, ref, events, admission, secrets, n)

    async def stacks(self, tenant: str, asked: OneMoment) -> Stacks:
        """Return the frames of the tasks of a run after one of its events, and the files in which they are, without
        local variables, if its definition is code that this process hosts."""
        ref, events = RunRef(tenant, asked.run_id), await self._read_events(asked.run_id)
        n = event_at(events, asked.n or events[-1].n).n
        await self._run_checked(require_sound, ref, [event for event in events if event.n <= n])
        return await self._run_checked(partial(stacks_at, with_sources=True), ref, events, self._secrets_of, n)

    def _secrets_of(self, admission: Admitted) -> dict[str, str]:
        return secrets_of(self._connection.config, os.environ, admission)

    async def model_input(self, tenant: str, asked: OneCall) -> Seen:
        """Return the input of a call to a model: the whole conversation, and which part of it was new."""
        history = await self._histories.of(asked.run_id)
        ours = [event for event in history.events if event.key == asked.key]
        called = next((event for event in ours if event.type == ModelCall.type), None)
        if called is not None:
            # Events after the call do not affect its input.
            events = await self._read_events(asked.run_id, called.n)
            answered = [
                row for row in history.rows if row.event.key == asked.key and row.event.type == ModelResult.type
            ]
            reply = await self._restore_values(history, answered[0]) if answered else None
            await self._run_checked(require_sound, RunRef(tenant, asked.run_id), events)
            admission, secrets = await self._admission(events)
            found = await self._run_checked(
                reconstruct_request, RunRef(tenant, asked.run_id), events, admission, secrets, reply
            )
            if found is not None:
                return found
        message = f"the run has no call to a model with the key {asked.key[:200]!r}"
        raise ApiError(404, "replay.no_call", message, run_id=asked.run_id)

    async def blob(self, tenant: str, asked: OneValue) -> Content:
        """Return a large value that an event refers to by its sha256."""
        if not _SHA256.fullmatch(asked.sha256):
            message = f"invalid sha256: {asked.sha256[:80]!r}"
            raise ApiError(404, "http.unknown", message, expected="64 hexadecimal digits")
        try:
            found = await self._connection.log.get_blob(RunRef(tenant, asked.run_id), asked.sha256, BLOB_BYTES_MAX)
        except KeyError:
            message = "the run has no large value with this sha256"
            raise ApiError(404, "http.unknown", message, run_id=asked.run_id) from None
        except BlobTooLarge:
            message = f"the value has more than {BLOB_BYTES_MAX} bytes"
            raise ApiError(413, "api.too_large", message, run_id=asked.run_id) from None
        return Content(found)

    async def export(self, tenant: str, asked: OneFile) -> Content:
        """Return a run as a file: its events line by line, its trace for the Jaeger UI, or its diagram."""
        return await self._run_in_thread(_FILES[asked.form], await self._read_events(asked.run_id))

    async def diff(self, tenant: str, asked: TwoRuns) -> RunDiff:
        """Compare two runs by inputs, conversations, actions, results and costs. Forks are compared from the place
        where they part."""
        left, right = [await self._read_events(run) for run in (asked.left, asked.right)]
        return await self._run_in_thread(compare_logs, left, right, self._connection.config.price_table())

    async def workers(self, tenant: str, _request: Nothing) -> WorkerList:
        """List the live workers with their load, and the numbers of waiting messages, of all tenants."""
        return await self._workers.list_workers()

    async def _read_events(self, run: str, until: int | None = None) -> Sequence[Event]:
        """Return the events of a run with their large values, up to event ``until`` if it is given."""
        history = await self._histories.of(run, until)
        rows = [row for row in history.rows if until is None or row.event.n <= until]
        return [await self._restore_values(history, row) for row in rows]

    async def _restore_values(self, history: History, row: EventRow) -> Event:
        if not row.event.blobs:
            return row.event
        recorded = Recorded(row.sequence, history.ref, "", b"", row.event)
        return await whole(self._connection.log, recorded)

    async def _admission(self, events: Sequence[Event]) -> tuple[Admitted, dict[str, str]]:
        admission = await self._run_checked(read_admission, events[0], language, adopted_digest(events))
        return admission, self._secrets_of(admission)

    async def _run_checked(self, function: Callable[..., R], *arguments: Any) -> R:
        """Compute something in a thread. Its error, such as a divergence, becomes an `ApiError`."""
        try:
            return await self._run_in_thread(function, *arguments)
        except CallboardError as error:
            raise ApiError(409, error.code, error.message, remedy=error.remedy) from error

    async def _run_in_thread(self, function: Callable[..., R], *arguments: Any) -> R:
        """Compute something in a thread, so that the event loop is not blocked."""
        return await to_thread.run_sync(function, *arguments, limiter=self._folding)


def _jsonl(events: Sequence[Event]) -> Content:
    return Content(b"".join(msgspec.json.encode(event) + b"\n" for event in events), "application/x-ndjson")


def _jaeger(events: Sequence[Event]) -> Content:
    spans = SpanFold()
    return Content(msgspec.json.encode(jaeger(span for event in events for span in spans.apply(event))))


def _svg(events: Sequence[Event]) -> Content:
    result = fold(Results(), events)
    text = svg(diagram_of(events), title=result.definition, subtitle=f"run {result.run} · {result.status}")
    return Content(text.encode(), "image/svg+xml")


_FILES: Mapping[str, Callable[[Sequence[Event]], Content]] = {"jsonl": _jsonl, "jaeger": _jaeger, "svg": _svg}


def _require_accepted(events: Sequence[Event]) -> RunAccepted:
    payload = payload_of(events[0])
    if not isinstance(payload, RunAccepted):
        message = "the first event of the run is not run.accepted"
        raise ApiError(409, LogUnreadable.CODE, message, run_id=events[0].run)
    return payload
