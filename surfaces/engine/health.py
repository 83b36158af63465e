"""Health: whether the engine can work, which depends on its log. Any caller may ask."""

import time

from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.surfaces.http.answers import answer
from callboard.surfaces.http.readiness import FRESH_S, PATIENCE_S, Readiness

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
