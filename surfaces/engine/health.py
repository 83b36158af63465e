"""Health: whether the engine can work, which depends on its log. Any caller may ask."""

import time

import anyio
from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.surfaces.http.answers import answer

VERSION = "2.0.0"
SERVICE = "workflow_engine_v2"

PATIENCE_S = 2.0
"""How long the log may take to answer."""

FRESH_S = 1.0
"""How long an answer of the log is cached; requests in this time do not reach the log."""


class Health:
    """Answers ``/health`` for one tenant."""

    def __init__(
        self, log: JetStreamLog, tenant: str, patience_s: float = PATIENCE_S, fresh_s: float = FRESH_S
    ) -> None:
        self._log = log
        self._tenant = tenant
        self._patience_s = patience_s
        self._fresh_s = fresh_s
        self._began = time.monotonic()
        self._asking = anyio.Lock()
        self._asked_at: float | None = None
        self._problem: str | None = None

    async def serve(self, _request: Request) -> Response:
        """Report whether the log answers: 200 ``healthy``, or 503 ``unhealthy`` with the problem."""
        problem = await self._fresh_problem()
        uptime_s = int(time.monotonic() - self._began)
        told = {
            "status": "healthy" if problem is None else "unhealthy",
            "version": VERSION,
            "uptime_seconds": uptime_s,
            "service": SERVICE,
        }
        return answer(told) if problem is None else answer({**told, "detail": problem}, 503)

    async def _fresh_problem(self) -> str | None:
        async with self._asking:
            now = time.monotonic()
            if self._asked_at is None or now - self._asked_at >= self._fresh_s:
                self._problem = await problem_of(self._log, self._tenant, self._patience_s)
                self._asked_at = time.monotonic()
            return self._problem


async def problem_of(log: JetStreamLog, tenant: str, patience_s: float = PATIENCE_S) -> str | None:
    """Read from the log; return why it does not answer, None if it does."""
    if not log.nc.is_connected:
        return "not connected to the NATS server"
    try:
        with anyio.fail_after(patience_s):
            await log.last_message(log.subjects.events(tenant))
    except TimeoutError:
        return f"the log has not answered within {patience_s:g} s"
    except NoAnswer as error:
        return f"the log does not answer: {error}"
    return None
