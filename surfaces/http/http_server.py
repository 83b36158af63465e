"""The HTTP server, which shuts down in an orderly way when its task is cancelled."""

import socket
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.http.bounded_protocol import BoundedProtocol

CLOSE_WAIT_S = 2
"""How long open connections may take to end when the server stops."""

ANSWER_WAIT_S = 1.0
"""The part of that time within which the answer to a request must begin."""

BACKLOG = 128
"""Connections that wait to be accepted. With a longer queue asyncio logs as many errors at once when it runs out of
descriptors."""

STOPPING = "callboard.stopping"


async def serve_app(app: ASGIApp, bound: socket.socket) -> None:
    """Serve until cancelled; open connections then have `CLOSE_WAIT_S` to end.

    A response without an end, such as a stream, waits for the event `STOPPING` in its scope. A request without an
    answer after `ANSWER_WAIT_S` gets the error ``http.stopping``.
    """
    stopping = anyio.Event()
    requests = _Requests(app, stopping)
    config = uvicorn.Config(
        requests,
        http=BoundedProtocol,
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        lifespan="auto",
        timeout_graceful_shutdown=CLOSE_WAIT_S,
    )
    serving = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_when_cancelled, serving, stopping)
        # The server is asked to stop instead of being cancelled, so that it closes its sessions properly.
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(requests.let_go)
                await serving.serve(sockets=[bound])
                waiting.cancel_scope.cancel()
        tasks.cancel_scope.cancel()


async def _stop_when_cancelled(serving: uvicorn.Server, stopping: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stopping.set()
        serving.should_exit = True


class _Requests:
    """Passes requests on to an application, and keeps track of those whose answer has not begun."""

    def __init__(self, app: ASGIApp, stopping: anyio.Event) -> None:
        self._app = app
        self._stopping = stopping
        self._unanswered: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def begin(message: Message) -> None:
            self._unanswered.discard(answering)
            await send(message)

        with anyio.CancelScope() as answering:
            if scope["type"] == "http":
                self._unanswered.add(answering)
            try:
                await self._app({**scope, STOPPING: self._stopping}, receive, begin)
            finally:
                self._unanswered.discard(answering)
        if answering.cancelled_caught:
            error = ApiError(503, "http.stopping", "the server is stopping; try again", retry_after_s=1)
            await refusal(error)(scope, receive, send)

    async def let_go(self) -> None:
        """When the server stops, answer the requests that are still waiting."""
        await self._stopping.wait()
        await anyio.sleep(ANSWER_WAIT_S)
        for answering in self._unanswered:
            answering.cancel()


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
