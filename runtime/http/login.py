"""Login: a page's token, kept by the browser in a cookie that no script can read.

The page gets its token in the fragment of its address, which is sent nowhere, and brings it here once. From then on
the browser brings it with each request; whoever guards what lies behind sees it as the bearer token that it is.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.runtime.api.verbs import ApiError
from callboard.runtime.http.answers import HEADERS, refusal

COOKIE = "callboard"
"""How the cookie's name begins; the port is the rest, since cookies of a host are shared by all its ports."""

TOKEN_BYTES_MAX = 2_048
PATH = "/login"


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a login; without a token the cookie is forgotten."""

    token: str = ""


class Login:
    """In front of an application: answers ``POST /login``, and turns the cookie of a request into its bearer token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            await (await _login(Request(scope, receive)))(scope, receive, send)
            return
        if scope["type"] == "http" and (token := kept(Headers(scope=scope))) is not None:
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + token)]}
        await self._app(scope, receive, send)


def kept(headers: Mapping[str, str]) -> bytes | None:
    """Return the token that a request brings as a cookie; None if it brings none, or another one by itself."""
    name = _name(headers)
    if "authorization" in headers or name not in headers.get("cookie", ""):
        return None
    try:
        found = SimpleCookie(headers["cookie"]).get(name)
        return urlsafe_b64decode(found.value) if found is not None else None
    except (CookieError, ValueError):
        return None


def _name(headers: Mapping[str, str]) -> str:
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdigit() else COOKIE


async def _login(request: Request) -> Response:
    received = bytearray()
    try:
        async for chunk in request.stream():
            received += chunk
            if len(received) > TOKEN_BYTES_MAX:
                return refusal(ApiError(413, "http.too_large", f"a token has at most {TOKEN_BYTES_MAX} bytes"))
        token = msgspec.json.decode(bytes(received), type=_Login).token
    except ClientDisconnect:
        return Response(status_code=400)
    except msgspec.DecodeError as error:
        return refusal(ApiError(400, "api.malformed", str(error), expected='{"token": "…"}'))
    answer = Response(status_code=204, headers=HEADERS)
    answer.set_cookie(
        _name(request.headers),
        urlsafe_b64encode(token.encode()).decode(),
        max_age=None if token else 0,
        httponly=True,
        samesite="strict",
        secure=request.headers.get("origin", "").startswith("https:"),
    )
    return answer
