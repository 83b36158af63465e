"""The transport over streamable HTTP: one address, ``/mcp``, for any number of sessions, with authentication.

If tokens of an identity provider are accepted, the metadata of a protected resource (RFC 9728) names the provider. The
answer to a request without a token refers to it.
"""

import socket
from typing import Any

from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.features.access.subject import NOBODY, SCOPES, Subject
from callboard.features.access.tokens import SCOPE_PREFIX
from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.http.http_server import serve_app

PATH = "/mcp"

METADATA = "/.well-known/oauth-protected-resource"
"""The path of the metadata, with or without the path of the resource appended."""


async def serve_http(
    server: Server[Any], bound: socket.socket, host: str, access: Access, issuer: str | None = None
) -> None:
    """Serve until cancelled; ``issuer`` is the identity provider whose tokens ``access`` accepts."""
    app: ASGIApp = server.streamable_http_app(streamable_http_path=PATH, host=host)
    await serve_app(McpEndpoint(app, access, issuer), bound)


class McpEndpoint:
    """Authenticates requests in front of the server; refers unknown callers to the identity provider, if any."""

    def __init__(self, app: ASGIApp, access: Access, issuer: str | None = None) -> None:
        self._app = app
        self._access = access
        self._issuer = issuer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        if self._issuer is not None and scope["path"] in (METADATA, METADATA + PATH):
            await self._metadata(request, self._issuer)(scope, receive, send)
            return
        try:
            subject = await self._access.subject(scope)
        except ApiError as refused:
            await self._refusal(request, refused)(scope, receive, send)
            return
        state = {**scope.get("state", {}), "subject": subject}
        await self._app({**scope, "state": state, "user": _owner(subject)}, receive, send)

    def _metadata(self, request: HTTPConnection, issuer: str) -> Response:
        found = {
            "resource": _at(request, PATH),
            "authorization_servers": [issuer],
            "scopes_supported": [f"{SCOPE_PREFIX}{scope}" for scope in SCOPES],
            "bearer_methods_supported": ["header"],
            "resource_name": "Callboard",
        }
        # Clients in browsers read it from pages of other origins; it contains nothing private.
        return JSONResponse(found, headers={"Access-Control-Allow-Origin": "*"})

    def _refusal(self, request: HTTPConnection, refused: ApiError) -> Response:
        answer = refusal(refused)
        if refused.status == 401 and self._issuer is not None:
            scopes = " ".join(f"{SCOPE_PREFIX}{scope}" for scope in SCOPES)
            where = _at(request, METADATA + PATH)
            answer.headers["WWW-Authenticate"] = f'Bearer resource_metadata="{where}", scope="{scopes}"'
        return answer


def _owner(subject: Subject) -> AuthenticatedUser:
    """Return the owner of a session that a request begins: other callers cannot use it, even if they know its id."""
    return AuthenticatedUser(AccessToken(token="", client_id=subject.name, scopes=[], subject=subject.name))


def _at(request: HTTPConnection, path: str) -> str:
    """Return the URL of a path at the address that the client uses, which may be a proxy's."""
    return str(request.base_url.replace(path=path, query=""))


def subject_of(request: Any) -> Subject:
    """Return the caller of a request; an anonymous one over stdio."""
    return request.scope.get("state", {}).get("subject", NOBODY) if isinstance(request, HTTPConnection) else NOBODY
