"""Serving over HTTP: an address that may be served, and a server that ends when it is cancelled.

On the loopback it answers only requests that name the loopback as their host, so that no web page reaches it under a
name of its own. Elsewhere, and wherever a token is configured, a request must bring that as its bearer token.
"""

import hmac
import socket
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.bus.errors import OperatorError

CLOSE_WAIT_S = 2
"""How long open connections may take to end when we stop."""

BACKLOG = 128
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AddressUnusable(OperatorError):
    """The address that was to be served cannot be, or not without a token."""

    def __init__(self, code: str, message: str, where: str, remedy: str) -> None:
        super().__init__(code, message, where, remedy)


def check_address(host: str, port: int, token: str | None, kind: str) -> None:
    """Check that an address may be served; ``kind`` (``mcp``, ``http``) is whose codes and settings are meant.

    :raises AddressUnusable: ``<kind>.token_missing``
    """
    if host not in LOOPBACK and not token:
        remedy = f"Set CALLBOARD_{kind.upper()}_TOKEN, which requests then must bring, or listen on 127.0.0.1."
        message = "whoever reaches this server can run programs here, and no token is configured"
        raise AddressUnusable(f"{kind}.token_missing", message, f"{host}:{port}", remedy)


def listening(host: str, port: int, kind: str) -> socket.socket:
    """Bind an address; port 0 takes a free one.

    :raises AddressUnusable: ``<kind>.address``
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = str(error)
        raise AddressUnusable(
            f"{kind}.address", f"cannot listen: {reason}", f"{host}:{port}", "Choose another."
        ) from error
    found.setblocking(False)
    return found


def url_of(bound: socket.socket) -> str:
    """Return the URL under which a bound socket is served."""
    host, port, *_ = bound.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def serve_app(app: ASGIApp, bound: socket.socket) -> None:
    """Serve until cancelled; open connections then have `CLOSE_WAIT_S` to end."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="auto", timeout_graceful_shutdown=CLOSE_WAIT_S
    )
    serving = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_when_cancelled, serving)
        # Told to stop and not cancelled, so that sessions are ended in order.
        with anyio.CancelScope(shield=True):
            await serving.serve(sockets=[bound])
        tasks.cancel_scope.cancel()


async def _stop_when_cancelled(serving: uvicorn.Server) -> None:
    try:
        await anyio.sleep_forever()
    finally:
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
