"""Serving over HTTP: a server that ends when it is cancelled, and a token that requests have to bring."""

import hmac
import socket
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CLOSE_WAIT_S = 2
"""How long open connections may take to end when we stop."""

STOPPING = "callboard.stopping"


async def serve_app(app: ASGIApp, bound: socket.socket) -> None:
    """Serve until cancelled; open connections then have `CLOSE_WAIT_S` to end.

    What has no end of its own waits for the event that its scope has as `STOPPING`.
    """
    stopping = anyio.Event()

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, STOPPING: stopping}, receive, send)

    config = uvicorn.Config(
        told, log_config=None, access_log=False, lifespan="auto", timeout_graceful_shutdown=CLOSE_WAIT_S
    )
    serving = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_when_cancelled, serving, stopping)
        # Told to stop and not cancelled, so that sessions are ended in order.
        with anyio.CancelScope(shield=True):
            await serving.serve(sockets=[bound])
        tasks.cancel_scope.cancel()


async def _stop_when_cancelled(serving: uvicorn.Server, stopping: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stopping.set()
        serving.should_exit = True


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def guarded_by(token: str, app: ASGIApp, kind: str) -> ASGIApp:
    """Let only requests in that bring the token."""
    wanted = f"Bearer {token}".encode()

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: dict[bytes, bytes] = dict(scope["headers"])
            if not hmac.compare_digest(headers.get(b"authorization", b""), wanted):
                refusal = {"error": {"code": f"{kind}.unauthorized", "message": "bring the token as a bearer token"}}
                await JSONResponse(refusal, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        await app(scope, receive, send)

    return guard
