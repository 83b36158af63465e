"""Routes of the engine's interface, each with its scope and its parameters; its health; and the log entries of an
execution, in pages and as a live stream.
"""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard.bus.events import RunEnd
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.languages.kit import kits
from callboard.projections.trace.execution_log import ExecutionLog, LogEntry
from callboard.runtime.client.client import Client, UnknownRun
from callboard.runtime.run.log import read_run
from callboard.service.operations.folding import Folding
from callboard.service.operations.operation import ApiError
from callboard.service.operations.operation import Operation as ServiceOperation
from callboard.surfaces.engine.engine_requests import answering, number_in, run_of, truth_in
from callboard.surfaces.engine.executions import START, Executions
from callboard.surfaces.engine.openapi import EngineOperation, Fields, document
from callboard.surfaces.engine.workflows import RegisteredWorkflows
from callboard.surfaces.http.answers import answer
from callboard.surfaces.http.live import LIVE_MAX, MEDIA_TYPE, Live
from callboard.surfaces.http.readiness import FRESH_S, PATIENCE_S, Readiness, problem_of, unavailable
from callboard.surfaces.http.request_body import RequestSlots

VERSION = "2.0.0"
SERVICE = "workflow_engine_v2"


class Health:
    """Answers ``/health`` for one tenant."""

    def __init__(
        self, log: JetStreamLog, tenant: str, patience_s: float = PATIENCE_S, fresh_s: float = FRESH_S
    ) -> None:
        self._readiness = Readiness(log, tenant, patience_s, fresh_s)
        self._began = time.monotonic()

    async def serve(self, _request: Request) -> Response:
        """Report whether the log answers: 200 ``healthy``, or 503 ``unhealthy`` with the problem."""
        problem = await self._readiness.find_problem()
        uptime_s = int(time.monotonic() - self._began)
        told = {
            "status": "healthy" if problem is None else "unhealthy",
            "version": VERSION,
            "uptime_seconds": uptime_s,
            "service": SERVICE,
        }
        return answer(told) if problem is None else answer({**told, "detail": problem}, 503)


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
            raise unavailable(problem)
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


REQUESTS_MAX = 256
"""Requests answered at once, including those that wait for an execution."""

_RESUME: Fields = {"node_id": "string", "interaction_id": "string", "user_response": "", "resume_data": ""}
_MILESTONE: Fields = {"message*": "string", "user_message": "string", "data": ""}
_GRAPH: Fields = {"nodes": "array", "connections": "array", "triggers": "array", "variables": "object"}
_ABOUT: Fields = {"name": "string", "description": "string", "icon_url": "string", "tags": "array", "version": "string"}
_MADE: Fields = {"name*": "string", "created_by*": "string", "nodes*": "array", "connections*": "array"}
_MORE: Fields = {"triggers": "array", "variables": "object", "metadata": "object", "parent_workflow": "string"}
_PAGE: Fields = {"limit": "integer", "offset": "integer"}
_LOGS: Fields = {**_PAGE, "level": "string", "start_time": "integer", "end_time": "integer"}
_TEMPLATES: Fields = {"category": "string", "node_type": "string", "include_system": "boolean"}


def engine_operations(
    log: JetStreamLog, tenant: str, operations: Mapping[str, ServiceOperation]
) -> list[EngineOperation]:
    """Return the operations below ``/v2``, for the language with typed nodes."""
    language = next(kit.name for kit in kits().values() if kit.typed_nodes)
    executions, workflows = (
        Executions(log, tenant, operations, language),
        RegisteredWorkflows(log, tenant, operations, language),
    )
    logs = Logs(log, tenant)
    one, workflow = "/v2/executions/{id}", "/v2/workflows/{id}"
    return [
        EngineOperation(
            "POST", "/v2/execute", "start", executions.execute_inline, body={**START, "workflow*": "object"}
        ),
        EngineOperation("POST", f"{workflow}/execute", "start", executions.execute, body=START),
        EngineOperation("POST", f"{one}/resume", "answer", executions.resume, body=_RESUME),
        EngineOperation("POST", f"{one}/cancel", "operate", executions.cancel),
        EngineOperation("POST", f"{one}/milestone", "operate", executions.milestone, body=_MILESTONE),
        EngineOperation("GET", one, "read", executions.show),
        EngineOperation("GET", f"{one}/progress", "read", executions.progress),
        EngineOperation("GET", f"{one}/logs/stream", "read", logs.stream, {"follow": "boolean"}, media=MEDIA_TYPE),
        EngineOperation("GET", f"{one}/logs/summary", "read", logs.summary),
        EngineOperation("GET", "/v2/workflows/executions/{id}/logs", "read", logs.pages, _LOGS),
        EngineOperation("GET", "/v2/logs/health", "read", logs.health),
        EngineOperation("GET", f"{workflow}/executions", "read", executions.list_executions, {"limit": "integer"}),
        EngineOperation("GET", "/v2/workflows/node-templates", "read", workflows.templates, _TEMPLATES),
        EngineOperation("POST", "/v2/workflows", "operate", workflows.create, body={**_ABOUT, **_MADE, **_MORE}),
        EngineOperation("GET", "/v2/workflows", "read", workflows.list_workflows, {**_PAGE, "tags": "string"}),
        EngineOperation("GET", workflow, "read", workflows.show),
        EngineOperation("PUT", workflow, "operate", workflows.change, body={**_ABOUT, **_GRAPH}),
        EngineOperation("DELETE", workflow, "operate", workflows.delete),
    ]


def engine_routes(log: JetStreamLog, tenant: str, operations: Mapping[str, ServiceOperation]) -> list[Route]:
    """Return the routes below ``/v2``, including that of their OpenAPI document."""
    asked, places = engine_operations(log, tenant, operations), RequestSlots(REQUESTS_MAX)
    described = document(asked, VERSION)

    async def describe(_request: Request) -> Any:
        return described

    return [
        Route("/v2/openapi.json", answering("read", describe, places), methods=["GET"]),
        *(Route(one.path, answering(one.scope, one.handler, places), methods=[one.method]) for one in asked),
    ]


def health_route(log: JetStreamLog, tenant: str) -> Route:
    """Return the route of ``/health``, which needs no authentication."""
    return Route("/health", Health(log, tenant).serve, methods=["GET"])
