"""Logs: the log entries of an execution, in pages and as a live stream."""

import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import Request

from callboard.bus.events import RunEnd
from callboard.bus.log.port import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.projections.trace.execution_log import ExecutionLog, LogEntry
from callboard.runtime.run.log import read_run
from callboard.service.client.client import Client, UnknownRun
from callboard.service.operations.live_projection import Folding
from callboard.service.operations.operation import ApiError
from callboard.surfaces.engine.engine_requests import number_in, run_of, truth_in
from callboard.surfaces.engine.health import problem_of
from callboard.surfaces.http.live import LIVE_MAX, Live

LOGS = 100
LOGS_MAX = 5_000

Kind = Literal["log", "info", "complete"]
"""Events of the stream: an entry; the end of the stream while the execution continues; the end of the execution."""


class Logs:
    """The logs of one tenant's executions."""

    def __init__(self, log: JetStreamLog, tenant: str) -> None:
        self._log = log
        self._tenant = tenant
        self._client = Client(log, tenant)
        self._folding = Folding()
        self._following = 0

    async def pages(self, request: Request) -> Any:
        """``GET /v2/workflows/executions/{id}/logs``: the log entries of an execution."""
        run = run_of(request)
        limit, offset = number_in(request, "limit", LOGS, LOGS_MAX), number_in(request, "offset", 0, 10**9)
        since, until = number_in(request, "start_time", 0, 10**15), number_in(request, "end_time", 10**15, 10**15)
        given = request.query_params.get("level", "").upper()
        level = "WARNING" if given == "WARN" else given
        entries = [
            one
            for one in await self._entries(run)
            if since <= one.timestamp <= until and (not level or one.level == level)
        ]
        page = entries[offset : offset + limit]
        told = {"limit": limit, "offset": offset, "has_more": offset + limit < len(entries)}
        return {"execution_id": run, "logs": page, "total_count": len(entries), "pagination": told}

    async def summary(self, request: Request) -> Any:
        """``GET /v2/executions/{id}/logs/summary``: the number of entries by level, event and node."""
        run = run_of(request)
        entries = await self._entries(run)
        counts = {
            "by_level": Counter(one.level for one in entries),
            "by_event": Counter(one.event_type for one in entries),
            "by_node": Counter(one.node_name for one in entries if one.node_name),
        }
        span = {"first": entries[0].timestamp, "last": entries[-1].timestamp} if entries else {}
        return {"execution_id": run, "total_count": len(entries), **counts, "timeline": span}

    async def _entries(self, run: str) -> list[LogEntry]:
        return await self._folding.fold(ExecutionLog(), await self._client.events(run))

    async def stream(self, request: Request) -> Live:
        """``GET /v2/executions/{id}/logs/stream``: the log entries as server-sent events."""
        run = run_of(request)
        frames = partial(self._frames, RunRef(self._tenant, run), truth_in(request, "follow", True))
        if await self._log.last(RunRef(self._tenant, run)) is None:
            raise UnknownRun(RunRef(self._tenant, run))
        if self._following >= LIVE_MAX:
            raise ApiError(503, "api.busy", f"{LIVE_MAX} readers are connected already; try again later")
        self._following += 1
        return Live(self._log, frames, partial(request.state.may, "read"), self._leave)

    async def health(self, request: Request) -> Any:
        """``GET /v2/logs/health``: whether logs can be read."""
        if (problem := await problem_of(self._log, self._tenant)) is not None:
            raise ApiError(503, "log.unavailable", problem)
        return {"status": "healthy", "streams": self._following, "timestamp": _now_ms()}

    def _leave(self) -> None:
        self._following -= 1

    async def _frames(self, ref: RunRef, follow: bool) -> AsyncGenerator[bytes]:
        entries, told = ExecutionLog(), 0
        async with aclosing(self._recorded_events(ref, follow)) as found:
            async for recorded in found:
                _take(entries, recorded)
                for one in entries.since(told):
                    told += 1
                    yield _frame(ref.run, "log", one)
                if recorded.event.type == RunEnd.type:
                    yield _frame(ref.run, "complete", {"total_count": told})
                    return
        yield _frame(ref.run, "info", {"total_count": told})

    async def _recorded_events(self, ref: RunRef, follow: bool) -> AsyncGenerator[Recorded]:
        """Yield the events of a run, and with ``follow`` also the new ones."""
        after = 0
        for recorded in await read_run(self._log, ref):
            # The events that a fork takes from its origin have lower sequences than its first one.
            after = max(after, recorded.sequence)
            yield recorded
        if follow:
            async with self._log.follow(self._log.subjects.events(ref.tenant, ref.run), after) as feed:
                async for recorded in feed:
                    yield recorded


def _take(entries: ExecutionLog, recorded: Recorded) -> None:
    if recorded.readable:
        entries.apply(recorded.event)


def _frame(run: str, kind: Kind, data: Any) -> bytes:
    told = {"event_type": kind, "data": data, "timestamp": _now_ms(), "execution_id": run}
    return b"data: " + msgspec.json.encode(told) + b"\n\n"


def _now_ms() -> int:
    return int(time.time() * 1000)
