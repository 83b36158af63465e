"""Routes of the engine's interface, each with the scope that it takes."""

import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard.bus.jetstream import JetStreamLog
from callboard.languages.kit import kits
from callboard.runtime.api.outcomes import Verb
from callboard.runtime.engine.asking import answering
from callboard.runtime.engine.executions import Executions
from callboard.runtime.engine.logs import Logs
from callboard.runtime.engine.workflows import Workflows
from callboard.runtime.http.answers import answer

VERSION = "2.0.0"
SERVICE = "workflow_engine_v2"


def engine_routes(log: JetStreamLog, tenant: str, verbs: Mapping[str, Verb]) -> list[Route]:
    """Return the routes below ``/v2``, for the language whose nodes have types."""
    language = next(kit.name for kit in kits().values() if kit.typed_nodes)
    executions, workflows = Executions(log, tenant, verbs, language), Workflows(log, tenant, verbs, language)
    logs = Logs(log, tenant)
    one, workflow = "/v2/executions/{id}", "/v2/workflows/{id}"
    table = (
        ("POST", "/v2/execute", "start", executions.execute_inline),
        ("POST", f"{workflow}/execute", "start", executions.execute),
        ("POST", f"{one}/resume", "answer", executions.resume),
        ("POST", f"{one}/cancel", "operate", executions.cancel),
        ("POST", f"{one}/milestone", "operate", executions.milestone),
        ("GET", one, "read", executions.show),
        ("GET", f"{one}/progress", "read", executions.progress),
        ("GET", f"{one}/logs/stream", "read", logs.stream),
        ("GET", f"{one}/logs/summary", "read", logs.summary),
        ("GET", "/v2/workflows/executions/{id}/logs", "read", logs.pages),
        ("GET", "/v2/logs/health", "read", logs.health),
        ("GET", f"{workflow}/executions", "read", executions.listed),
        ("GET", "/v2/workflows/node-templates", "read", workflows.templates),
        ("POST", "/v2/workflows", "operate", workflows.create),
        ("GET", "/v2/workflows", "read", workflows.listed),
        ("GET", workflow, "read", workflows.show),
        ("PUT", workflow, "operate", workflows.change),
        ("DELETE", workflow, "operate", workflows.delete),
    )
    return [Route(path, answering(scope, handler), methods=[method]) for method, path, scope, handler in table]


def health_route() -> Route:
    """Return the route of ``/health``, which is for everybody."""
    began = time.monotonic()

    async def healthy(_request: Request) -> Response:
        uptime_s = int(time.monotonic() - began)
        return answer({"status": "healthy", "version": VERSION, "uptime_seconds": uptime_s, "service": SERVICE})

    return Route("/health", healthy, methods=["GET"])
