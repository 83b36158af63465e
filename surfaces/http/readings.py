"""Readings: what a page asks of one run besides what the verbs of the service answer.

What is folded is folded in a thread, a few at once, from events that are read once (`histories`).
"""

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
from anyio import to_thread

from callboard.bus.errors import CallboardError, LogUnreadable
from callboard.bus.events import Event, ModelCall, ModelResult, RunAccepted, payload_of
from callboard.bus.log.damage import require_sound
from callboard.bus.log.port import Recorded, whole
from callboard.bus.nats.blobs import TooLarge
from callboard.bus.subjects import RunRef
from callboard.languages.registry import language
from callboard.projections.comparison.diff import RunDiff, compare_logs
from callboard.projections.drawing.diagram import DiagramFold, Direction
from callboard.projections.drawing.geometry import Geometry, geometry, outline_hash
from callboard.projections.drawing.svg import svg
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.spans.jaeger import jaeger
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.columns import Row, columns
from callboard.runtime.interpreter.code import adopted_digest
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.worker.secrets import secrets_of
from callboard.service.api.connection import Connection
from callboard.service.api.verbs import ApiError, read_body
from callboard.service.operations.replays import Replayed, replay_events
from callboard.service.operations.sights import Seen, seen
from callboard.surfaces.http.answers import Content
from callboard.surfaces.http.histories import Histories, History, count_to, event_at
from callboard.surfaces.http.origin_and_ending import ending_told, origin_told
from callboard.surfaces.http.shapes import (
    INDEX_EVENTS_MAX,
    At,
    Index,
    OneCall,
    OneFile,
    OneGraph,
    OneMoment,
    OnePiece,
    OneValue,
    TwoRuns,
)
from callboard.surfaces.http.workers import WorkerList, Workers

FOLDS_AT_ONCE = 2
"""Folds that are computed side by side; more only wait for each other."""

PIECES_MAX = 32
"""Answers of the index that are kept, of those that stay as they are."""

DRAWINGS_MAX = 64
"""Drawings that are kept, by outline and direction."""

BLOB_BYTES_MAX = 64 * 1024 * 1024
"""The largest large value that is handed out."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

R = TypeVar("R")


class Readings:
    """What a page asks of the runs of one tenant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._histories = Histories(connection.log, connection.config.tenant, connection.config.price_table())
        self._folding = anyio.CapacityLimiter(FOLDS_AT_ONCE)
        self._pieces: OrderedDict[tuple[int, int, int], Index] = OrderedDict()
        self._workers = Workers(connection.log)
        self._drawings: OrderedDict[tuple[str, Direction], Geometry] = OrderedDict()

    def all(self) -> Mapping[str, Callable[[str, bytes], Awaitable[Any]]]:
        """Every reading: its name to what takes tenant and request."""
        return {
            "geometry": self.geometry,
            "index": self.index,
            "at": self.at,
            "replay": self.replay,
            "seen": self.seen,
            "blob": self.blob,
            "export": self.export,
            "diff": self.diff,
            "workers": self.workers,
        }

    async def geometry(self, tenant: str, body: bytes) -> Geometry:
        """Return where the nodes and edges of a run's definition stand in a drawing; what happened is told by `at`."""
        asked = read_body(body, OneGraph)
        outline = _read_accepted((await self._histories.of(asked.run_id, 1)).events).outline
        key = outline_hash(outline), asked.direction
        if key not in self._drawings:
            self._drawings[key] = await self._apart(geometry, outline, asked.direction)
            if len(self._drawings) > DRAWINGS_MAX:
                self._drawings.popitem(last=False)
        self._drawings.move_to_end(key)
        return self._drawings[key]

    async def index(self, tenant: str, body: bytes) -> Index:
        """Return what a list of a run's events needs of each, as columns."""
        asked = read_body(body, OnePiece)
        if not 1 <= asked.limit <= INDEX_EVENTS_MAX or asked.after < 0:
            raise ApiError(400, "api.malformed", f"limit is {asked.limit}", expected=f"1 to {INDEX_EVENTS_MAX}")
        history = await self._histories.of(asked.run_id, asked.after + asked.limit + 1)
        # Where something that is none stands in an event's place, its number is not the place of its row.
        begin = bisect_right(history.rows, asked.after, key=lambda row: row.event.n)
        rows = history.rows[begin : begin + asked.limit]
        more = len(history.rows) > begin + len(rows) or not history.complete
        final = more or history.ended
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
            ended=history.ended,
            origin=origin_told(history.events[0]),
            ending=ending_told(rows),
            **msgspec.structs.asdict(await self._apart(columns, rows, asked.after)),
        )
        if final:
            self._pieces[key] = found
            if len(self._pieces) > PIECES_MAX:
                self._pieces.popitem(last=False)
        return found

    async def at(self, tenant: str, body: bytes) -> At:
        """Say how a run stood behind one of its events: result, status, nodes, and the colours of its diagram.

        What cannot be read has no part in it; if it is that very event, what was before it is said.
        """
        asked = read_body(body, OneMoment)
        history = await self._histories.of(asked.run_id)
        last = history.last
        count = count_to(history.events, asked.n or last)
        async with history.folding:
            frame = await self._apart(history.keyframes.at, history.events, count)
        return At(last=last, **msgspec.structs.asdict(await self._apart(frame.view)))

    async def replay(self, tenant: str, body: bytes) -> Replayed:
        """Run the interpreter over a run's events up to one of them: verify them, and say what it waits for there."""
        asked = read_body(body, OneMoment)
        ref, events = RunRef(tenant, asked.run_id), await self._whole(asked.run_id)
        n = event_at(events, asked.n or events[-1].n).n
        await self._verify(require_sound, ref, [event for event in events if event.n <= n])
        admission, secrets = await self._admission(events)
        return await self._verify(replay_events, ref, events, admission, secrets, n)

    async def seen(self, tenant: str, body: bytes) -> Seen:
        """Return what a model saw at one of its calls: the whole conversation, and what of it was new."""
        asked = read_body(body, OneCall)
        history = await self._histories.of(asked.run_id)
        ours = [event for event in history.events if event.key == asked.key]
        called = next((event for event in ours if event.type == ModelCall.type), None)
        if called is not None:
            # What comes behind the call has no part in it.
            events = await self._whole(asked.run_id, called.n)
            answered = [
                row for row in history.rows if row.event.key == asked.key and row.event.type == ModelResult.type
            ]
            reply = await self._join_values(history, answered[0]) if answered else None
            await self._verify(require_sound, RunRef(tenant, asked.run_id), events)
            admission, secrets = await self._admission(events)
            found = await self._verify(seen, RunRef(tenant, asked.run_id), events, admission, secrets, reply)
            if found is not None:
                return found
        raise ApiError(404, "replay.no_call", f"no model was called as {asked.key[:200]!r}", run_id=asked.run_id)

    async def blob(self, tenant: str, body: bytes) -> Content:
        """Return a large value that an event refers to by its sha256."""
        asked = read_body(body, OneValue)
        if not _SHA256.fullmatch(asked.sha256):
            raise ApiError(404, "http.unknown", f"{asked.sha256[:80]!r} is no sha256", expected="64 hexadecimal digits")
        try:
            found = await self._connection.log.get_blob(RunRef(tenant, asked.run_id), asked.sha256, BLOB_BYTES_MAX)
        except KeyError:
            raise ApiError(404, "http.unknown", "the run has no such large value", run_id=asked.run_id) from None
        except TooLarge:
            message = f"the value has more than {BLOB_BYTES_MAX} bytes"
            raise ApiError(413, "api.too_large", message, run_id=asked.run_id) from None
        return Content(found)

    async def export(self, tenant: str, body: bytes) -> Content:
        """Return a run as a file: its events line by line, its trace for the Jaeger UI, or its diagram."""
        asked = read_body(body, OneFile)
        return await self._apart(_FILES[asked.form], await self._whole(asked.run_id))

    async def diff(self, tenant: str, body: bytes) -> RunDiff:
        """Compare two runs, forks from their parting on: what they were given, saw, did and came to, and took."""
        asked = read_body(body, TwoRuns)
        left, right = [await self._whole(run) for run in (asked.left, asked.right)]
        return await self._apart(compare_logs, left, right, self._connection.config.price_table())

    async def workers(self, tenant: str, body: bytes) -> WorkerList:
        """List the workers that live, with what they have to do, and what waits in the queues: of all tenants."""
        return await self._workers.listed()

    async def _whole(self, run: str, until: int | None = None) -> Sequence[Event]:
        """Return the events of a run, up to one of them, with their large values."""
        history = await self._histories.of(run, until)
        rows = [row for row in history.rows if until is None or row.event.n <= until]
        return [await self._join_values(history, row) for row in rows]

    async def _join_values(self, history: History, row: Row) -> Event:
        if not row.event.blobs:
            return row.event
        recorded = Recorded(row.sequence, history.ref, "", b"", row.event)
        return await whole(self._connection.log, recorded)

    async def _admission(self, events: Sequence[Event]) -> tuple[Admitted, dict[str, str]]:
        admission = await self._verify(read_admission, events[0], language, adopted_digest(events))
        return admission, secrets_of(self._connection.config, os.environ, admission)

    async def _verify(self, function: Callable[..., R], *arguments: Any) -> R:
        """Compute in a thread what a replay may contradict."""
        try:
            return await self._apart(function, *arguments)
        except CallboardError as error:
            raise ApiError(409, error.code, error.message, remedy=error.remedy) from error

    async def _apart(self, function: Callable[..., R], *arguments: Any) -> R:
        """Compute something in a thread, off the loop."""
        return await to_thread.run_sync(function, *arguments, limiter=self._folding)


def _jsonl(events: Sequence[Event]) -> Content:
    return Content(b"".join(msgspec.json.encode(event) + b"\n" for event in events), "application/x-ndjson")


def _jaeger(events: Sequence[Event]) -> Content:
    spans = SpanFold()
    return Content(msgspec.json.encode(jaeger(span for event in events for span in spans.apply(event))))


def _svg(events: Sequence[Event]) -> Content:
    result, diagram = fold(Results(), events), fold(DiagramFold(), events)
    text = svg(diagram, title=result.definition, subtitle=f"run {result.run} · {result.status}")
    return Content(text.encode(), "image/svg+xml")


_FILES: Mapping[str, Callable[[Sequence[Event]], Content]] = {"jsonl": _jsonl, "jaeger": _jaeger, "svg": _svg}


def _read_accepted(events: Sequence[Event]) -> RunAccepted:
    payload = payload_of(events[0])
    if not isinstance(payload, RunAccepted):
        raise ApiError(409, LogUnreadable.CODE, "the run does not begin with its admission", run_id=events[0].run)
    return payload
