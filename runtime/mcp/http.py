"""The transport over streamable HTTP: one address, ``/mcp``, for any number of sessions."""

import socket
from typing import Any

from mcp.server import Server
from starlette.types import ASGIApp

from callboard.runtime.http.serving import guarded_by, serve_app

PATH = "/mcp"


async def serve_http(server: Server[Any], bound: socket.socket, host: str, token: str | None) -> None:
    """Serve until cancelled."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, host=host)
    await serve_app(guarded_by(token, app, "mcp") if token else app, bound)
