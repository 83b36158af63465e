"""The HTTP server, which shuts down in an orderly way when its task is cancelled.

The protocol of a connection has two bounds that uvicorn lacks: the time for the head of a request, and the number of
connections. So clients that send nothing cannot lock out others. And the server refuses a request whose end a proxy
may see at another place, so that nothing is taken for a further request that was a part of the body for the proxy.
"""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import structlog
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.http.readiness import unavailable

logger = structlog.get_logger(__name__)

HEAD_WAIT_S = 20.0
"""How long the head of a request may take to arrive, counted from the connection or the previous response."""

CONNECTIONS_MAX = 4_000
DESCRIPTORS_SHARE = 0.5
"""Maximum number of connections, and the share of this process's file descriptors that they may take. The other
descriptors are for files and for the connection to NATS."""

LOG_EVERY_S = 10.0
"""Minimum time between two log entries about refused connections."""


def connections_max() -> int:
    """Return the maximum number of connections of this process."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, int(descriptors * DESCRIPTORS_SHARE)))


class BoundedProtocol(H11Protocol):
    """One connection. It is closed if there are too many, or if the head of a request does not arrive in time."""

    head_wait_s = HEAD_WAIT_S
    _logged_at = 0.0
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._awaits_head = self.conn.their_state

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > connections_max():
            self._log_refusal()
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is self._awaits_head:
            self._expect_head()
        else:
            self._stop_waiting()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_wait_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        cast("Any", self.transport).abort()

    def _log_refusal(self) -> None:
        now = self.loop.time()
        if now - BoundedProtocol._logged_at >= LOG_EVERY_S:
            BoundedProtocol._logged_at = now
            logger.warning("too many connections; new ones are refused", most=connections_max())


CLOSE_WAIT_S = 2
"""How long open connections may take to end when the server stops."""

ANSWER_WAIT_S = 1.0
"""The part of that time within which the answer to a request must begin."""

BACKLOG = 128
"""Connections that wait to be accepted. With a longer queue asyncio logs as many errors at once when it runs out of
descriptors."""

STOPPING = "callboard.stopping"


LOG_WAIT_S = 2.0
"""How long a request may wait until the log is asked whether it answers, and how long the log may then not answer."""

LOG_POLL_S = 0.5

FindProblem = Callable[[], Awaitable[str | None]]
"""Returns why the log does not answer, None if it does."""


async def serve_app(app: ASGIApp, bound: socket.socket, find_problem: FindProblem | None = None) -> None:
    """Serve until cancelled; open connections then have `CLOSE_WAIT_S` to end.

    A response without an end, such as a stream, waits for the event `STOPPING` in its scope. A request without an
    answer after `ANSWER_WAIT_S` gets the error ``http.stopping``. With ``find_problem``, requests that wait while the
    log does not answer get ``log.unavailable`` after a few seconds: they may wait for as long as a run goes on, but not
    for a server that is gone.
    """
    stopping = anyio.Event()
    requests = _Requests(app, stopping)
    config = uvicorn.Config(
        requests,
        http=BoundedProtocol,
        ws="none",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        lifespan="auto",
        timeout_graceful_shutdown=CLOSE_WAIT_S,
    )
    serving = _Server(config, stopping)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_when_cancelled, serving, stopping)
        # The server is asked to stop instead of being cancelled, so that it closes its sessions properly.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(requests.let_go)
                if find_problem is not None:
                    waiting.start_soon(requests.watch_log, find_problem)
                await serving.serve(sockets=[bound])
                waiting.cancel_scope.cancel()
        tasks.cancel_scope.cancel()


async def _stop_when_cancelled(serving: uvicorn.Server, stopping: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        serving.should_exit = True
        stopping.set()


class _Requests:
    """Passes requests on to an application, and keeps track of those whose answer has not begun."""

    def __init__(self, app: ASGIApp, stopping: anyio.Event) -> None:
        self._app = app
        self._stopping = stopping
        self._unanswered: dict[anyio.CancelScope, float] = {}
        """The time when each of them began."""
        self._problem: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def begin(message: Message) -> None:
            self._unanswered.pop(answering, None)
            await send(message)

        if scope["type"] == "http" and _has_ambiguous_length(scope):
            await _AMBIGUOUS(scope, receive, send)
            return
        with anyio.CancelScope() as answering:
            if scope["type"] == "http":
                self._unanswered[answering] = anyio.current_time()
            try:
                await self._app({**scope, STOPPING: self._stopping}, receive, begin)
            finally:
                self._unanswered.pop(answering, None)
        if answering.cancelled_caught:
            await refusal(self._error())(scope, receive, send)

    def _error(self) -> ApiError:
        """The error of the requests that are ended now."""
        if self._stopping.is_set() or self._problem is None:
            return ApiError(503, "http.stopping", "the server is stopping; try again", retry_after_s=1)
        return unavailable(self._problem)

    async def let_go(self) -> None:
        """When the server stops, answer the requests that are still waiting."""
        await self._stopping.wait()
        await anyio.sleep(ANSWER_WAIT_S)
        for answering in self._unanswered:
            answering.cancel()

    async def watch_log(self, find_problem: FindProblem) -> None:
        """While the log does not answer, end the requests that have waited for it."""
        while True:
            await anyio.sleep(LOG_POLL_S)
            if not self._waiting() or await find_problem() is None:
                continue
            # A connection that is lost is often back at once, and a busy machine may have delayed the answer.
            found_at = anyio.current_time()
            while (problem := await find_problem()) is not None:
                if anyio.current_time() - found_at >= LOG_WAIT_S:
                    self._problem = problem
                    for answering in self._waiting():
                        answering.cancel()
                    break
                await anyio.sleep(LOG_POLL_S)

    def _waiting(self) -> list[anyio.CancelScope]:
        """The requests that have waited for `LOG_WAIT_S`."""
        until = anyio.current_time() - LOG_WAIT_S
        return [answering for answering, began in self._unanswered.items() if began <= until]


def _has_ambiguous_length(scope: Scope) -> bool:
    """Return whether a request has both lengths, or chunks in HTTP/1.0 (RFC 9112, 6.1).

    The chunks are read then, and a proxy may count the bytes.
    """
    names = {name for name, _value in scope["headers"]}
    return b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] < "1.1")


_AMBIGUOUS = PlainTextResponse("The length of the body is ambiguous.", 400, {"Connection": "close"})
"""It ends the connection, so that nothing that follows is read."""


class _Server(uvicorn.Server):
    """A server that leaves signals to its process, and wakes once a second, for the date of its answers."""

    def __init__(self, config: uvicorn.Config, stopping: anyio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with anyio.move_on_after(1.0):
                await self._stopping.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
