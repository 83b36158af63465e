"""Readiness: whether this process can answer requests, which depends on its log. Any caller may ask."""

import time

import anyio
from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.answers import answer, refusal

PATIENCE_S = 2.0
"""How long the log may take to answer."""

FRESH_S = 1.0
"""How long an answer of the log is cached; requests in this time do not reach the log."""


class Readiness:
    """Whether the log of one tenant answers."""

    def __init__(
        self, log: JetStreamLog, tenant: str, patience_s: float = PATIENCE_S, fresh_s: float = FRESH_S
    ) -> None:
        self._log = log
        self._tenant = tenant
        self._patience_s = patience_s
        self._fresh_s = fresh_s
        self._asking = anyio.Lock()
        self._asked_at: float | None = None
        self._problem: str | None = None

    async def find_problem(self) -> str | None:
        """Return why the log does not answer, None if it does."""
        async with self._asking:
            now = time.monotonic()
            if self._asked_at is None or now - self._asked_at >= self._fresh_s:
                self._problem = await problem_of(self._log, self._tenant, self._patience_s)
                self._asked_at = time.monotonic()
            return self._problem

    async def serve(self, _request: Request) -> Response:
        """``/readyz``: 200 if the log answers, else 503 with the problem."""
        problem = await self.find_problem()
        return answer({"status": "ok"}) if problem is None else refusal(unavailable(problem))


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


def unavailable(problem: str) -> ApiError:
    """Return the error of a request that needs the log."""
    remedy = "Check that the NATS server runs, and that this process can reach it; then try again."
    return ApiError(503, "log.unavailable", problem, remedy=remedy)
