"""Routes of the engine's interface, each with its scope and its parameters."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.languages.kit import kits
from callboard.service.operations.operation import Operation as ServiceOperation
from callboard.surfaces.engine.engine_requests import answering
from callboard.surfaces.engine.executions import START, Executions
from callboard.surfaces.engine.health import VERSION, Health
from callboard.surfaces.engine.logs import Logs
from callboard.surfaces.engine.openapi import Fields, Operation, document
from callboard.surfaces.engine.workflows import Workflows
from callboard.surfaces.http.live import MEDIA_TYPE
from callboard.surfaces.http.request_body import Places

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


def engine_operations(log: JetStreamLog, tenant: str, operations: Mapping[str, ServiceOperation]) -> list[Operation]:
    """Return the operations below ``/v2``, for the language with typed nodes."""
    language = next(kit.name for kit in kits().values() if kit.typed_nodes)
    executions, workflows = Executions(log, tenant, operations, language), Workflows(log, tenant, operations, language)
    logs = Logs(log, tenant)
    one, workflow = "/v2/executions/{id}", "/v2/workflows/{id}"
    return [
        Operation("POST", "/v2/execute", "start", executions.execute_inline, body={**START, "workflow*": "object"}),
        Operation("POST", f"{workflow}/execute", "start", executions.execute, body=START),
        Operation("POST", f"{one}/resume", "answer", executions.resume, body=_RESUME),
        Operation("POST", f"{one}/cancel", "operate", executions.cancel),
        Operation("POST", f"{one}/milestone", "operate", executions.milestone, body=_MILESTONE),
        Operation("GET", one, "read", executions.show),
        Operation("GET", f"{one}/progress", "read", executions.progress),
        Operation("GET", f"{one}/logs/stream", "read", logs.stream, {"follow": "boolean"}, media=MEDIA_TYPE),
        Operation("GET", f"{one}/logs/summary", "read", logs.summary),
        Operation("GET", "/v2/workflows/executions/{id}/logs", "read", logs.pages, _LOGS),
        Operation("GET", "/v2/logs/health", "read", logs.health),
        Operation("GET", f"{workflow}/executions", "read", executions.list_executions, {"limit": "integer"}),
        Operation("GET", "/v2/workflows/node-templates", "read", workflows.templates, _TEMPLATES),
        Operation("POST", "/v2/workflows", "operate", workflows.create, body={**_ABOUT, **_MADE, **_MORE}),
        Operation("GET", "/v2/workflows", "read", workflows.list_workflows, {**_PAGE, "tags": "string"}),
        Operation("GET", workflow, "read", workflows.show),
        Operation("PUT", workflow, "operate", workflows.change, body={**_ABOUT, **_GRAPH}),
        Operation("DELETE", workflow, "operate", workflows.delete),
    ]


def engine_routes(log: JetStreamLog, tenant: str, operations: Mapping[str, ServiceOperation]) -> list[Route]:
    """Return the routes below ``/v2``, including that of their OpenAPI document."""
    asked, places = engine_operations(log, tenant, operations), Places(REQUESTS_MAX)
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
