"""Trace context over HTTP: what a request has begun belongs to the span that its headers name."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.bus.tracecontext import read, within


class Traced:
    """Serves an application, each request within the trace context of its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with within(read(Headers(scope=scope)) if scope["type"] == "http" else None):
            await self._app(scope, receive, send)
