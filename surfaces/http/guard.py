"""The guard: lets in only requests that a program of ours, or a page of this very address, can have made."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.service.api.verbs import ApiError
from callboard.surfaces.http.address import LOOPBACK
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.http.login import kept

JSON = "application/json"
SAFE = ("GET", "HEAD", "OPTIONS")

PAGE_HEADER = "callboard-page"
"""What our page sends with whatever changes something; a page somewhere else cannot without a preflight."""


class Guard:
    """In front of an application; ``loopback`` says that only requests which name the loopback are meant for us.

    A page somewhere else cannot make a browser send JSON here, since we answer no preflight; and a name that it has
    made point to us is not that of the loopback.
    """

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self.refused(scope) if scope["type"] == "http" else None
        await (refusal(refused) if refused is not None else self._app)(scope, receive, send)

    def refused(self, scope: Scope) -> ApiError | None:
        """Return why a request is not answered, if so."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # Whoever brings a token is known by that, or not at all; it has not come by a name that a page gave us.
        brings = "authorization" in headers or kept(headers) is not None
        if self._loopback and not brings and _name(host) not in LOOPBACK:
            return ApiError(403, "http.host", f"requests for {host[:80]!r} are not answered here", expected="127.0.0.1")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return ApiError(403, "http.origin", f"requests of pages at {origin[:80]!r} are not answered")
        if scope["method"] in SAFE:
            return None
        # A browser brings its cookie by itself, so that the request has to show whose it is.
        if origin is None and kept(headers) is not None:
            return ApiError(403, "http.origin", "a request with a cookie names the page that makes it", expected=host)
        if origin is not None and PAGE_HEADER not in headers:
            return ApiError(403, "http.page", f"a page brings the header {PAGE_HEADER!r} with what changes something")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and kind != JSON:
            return ApiError(415, "http.media_type", f"a body is read as JSON, not as {kind[:80]!r}", expected=JSON)
        return None


def _name(host: str) -> str:
    """The host in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
