"""Trace context over HTTP: everything that a request causes belongs to the span in its headers."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.bus.tracecontext import read, within


class Traced:
    """Runs each request of an application in the trace context of its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with within(read(Headers(scope=scope)) if scope["type"] == "http" else None):
            await self._app(scope, receive, send)
