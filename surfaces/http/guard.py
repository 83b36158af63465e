"""Protection against requests that pages of other sites make in the user's browser."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.address import LOOPBACK
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.http.login import cookie_token

JSON = "application/json"
SAFE = ("GET", "HEAD", "OPTIONS")

PAGE_HEADER = "callboard-page"
"""Header that Callboard's page sends with every change. A page of another site cannot set it without a preflight."""


class Guard:
    """Passes acceptable requests on to an application. With ``loopback``, the Host header must name the loopback.

    A page of another site cannot make a browser send JSON here, since no preflight is answered. If its host name is
    made to resolve to this machine, the Host header does not name the loopback.
    """

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self.find_fault(scope) if scope["type"] == "http" else None
        await (refusal(refused) if refused is not None else self._app)(scope, receive, send)

    def find_fault(self, scope: Scope) -> ApiError | None:
        """Return the error if a request must not be answered, else None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A request with a token is authenticated by it. A page of another site cannot send one.
        brings = "authorization" in headers or cookie_token(headers) is not None
        if self._loopback and not brings and _name(host) not in LOOPBACK:
            return ApiError(403, "http.host", f"requests to host {host[:80]!r} are not accepted", expected="127.0.0.1")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return ApiError(403, "http.origin", f"requests of pages at {origin[:80]!r} are not accepted")
        if scope["method"] in SAFE:
            return None
        # Browsers add cookies to all requests, so the request must also name the page that made it.
        if origin is None and cookie_token(headers) is not None:
            message = "a request with a cookie must have the header 'origin'"
            return ApiError(403, "http.origin", message, expected=host)
        if origin is not None and PAGE_HEADER not in headers:
            return ApiError(403, "http.page", f"a page must send the header {PAGE_HEADER!r} with a change")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and kind != JSON:
            return ApiError(415, "http.media_type", f"unsupported media type of the body: {kind[:80]!r}", expected=JSON)
        return None


def _name(host: str) -> str:
    """The host in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
