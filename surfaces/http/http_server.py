"""Serving over HTTP: a server that ends when it is cancelled."""

import socket
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard.service.api.verbs import ApiError
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.http.bounded_protocol import BoundedProtocol

CLOSE_WAIT_S = 2
"""How long open connections may take to end when we stop."""

ANSWER_WAIT_S = 1.0
"""How long, of that, requests may still take until their answer begins."""

BACKLOG = 128
"""Connections that wait to be accepted. With a longer queue asyncio logs as many errors at once when it runs out of
descriptors."""

STOPPING = "callboard.stopping"


async def serve_app(app: ASGIApp, bound: socket.socket) -> None:
    """Serve until cancelled; open connections then have `CLOSE_WAIT_S` to end.

    What has no end of its own waits for the event that its scope has as `STOPPING`; a request that is not answered
    after `ANSWER_WAIT_S` is told that we stop.
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
        # Told to stop and not cancelled, so that sessions are ended in order.
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
    """In front of an application: knows which requests have no answer yet."""

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
            error = ApiError(503, "http.stopping", "the server stops; ask the next one", retry_after_s=1)
            await refusal(error)(scope, receive, send)

    async def let_go(self) -> None:
        """When we stop, tell those who still wait."""
        await self._stopping.wait()
        await anyio.sleep(ANSWER_WAIT_S)
        for answering in self._unanswered:
            answering.cancel()


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
