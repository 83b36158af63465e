"""Login of the page: the browser keeps the page's token in a cookie that no script can read.

The page gets its token in the fragment of its address, which browsers do not send, and posts it here once. From then on
the browser sends the cookie with each request. The applications after this one see it as a bearer token.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.answers import HEADERS, refusal
from callboard.surfaces.http.request_body import receive_body

COOKIE = "callboard"
"""The beginning of the cookie's name. The rest is the port, since all ports of a host share their cookies."""

TOKEN_BYTES_MAX = 2_048
PATH = "/login"


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a login; without a token the cookie is deleted."""

    token: str = ""


class Login:
    """Answers ``POST /login``, and passes other requests on to an application, with their cookie as bearer token.

    An invalid token is refused with the same error as in any other request.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            await (await self._login(Request(scope, receive)))(scope, receive, send)
            return
        await self._app(with_token(scope) if scope["type"] == "http" else scope, receive, send)

    async def _login(self, request: Request) -> Response:
        try:
            token = (await _read_login(request)).token.encode()
            if token:
                await self._access.subject(_with_bearer(token, request.scope))
        except ApiError as error:
            # An invalid token deletes the cookie. If the token cannot be checked at the moment, the cookie stays.
            return _set_cookie(b"", request, refusal(error)) if error.status == 401 else refusal(error)
        return _set_cookie(token, request, Response(status_code=204, headers=HEADERS))


def with_token(scope: Scope) -> Scope:
    """Return a request in which the token of its cookie, if it has one, is the bearer token.

    Authenticate this request instead of the original one: otherwise an invalid cookie would count as no token at all.
    """
    token = cookie_token(Headers(scope=scope))
    return _with_bearer(token, scope) if token is not None else scope


def cookie_token(headers: Mapping[str, str]) -> bytes | None:
    """Return the token in the cookie of a request; None without a cookie, or if the request has a bearer token."""
    if "authorization" in headers:
        return None
    found = cookie_parser(headers.get("cookie", "")).get(_name(headers))
    try:
        return urlsafe_b64decode(found) if found is not None else None
    except ValueError:
        return None


def _name(headers: Mapping[str, str]) -> str:
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdigit() else COOKIE


def _with_bearer(token: bytes, scope: Scope) -> Scope:
    """Return a request with the given bearer token."""
    others = [one for one in scope["headers"] if one[0] != b"authorization"]
    return {**scope, "headers": [*others, (b"authorization", b"Bearer " + token)]}


async def _read_login(request: Request) -> _Login:
    """Read the body of a login.

    :raises ApiError: if it is too large, too slow, or malformed
    """
    body = await receive_body(request, TOKEN_BYTES_MAX)
    try:
        return decode_json(body, type=_Login)
    except JSON_ERRORS as error:
        raise ApiError(400, "api.malformed", str(error), expected='{"token": "…"}') from None


def _set_cookie(token: bytes, request: Request, answer: Response) -> Response:
    """Return an answer that makes the browser keep a token, or, if it is empty, delete its cookie."""
    answer.set_cookie(
        _name(request.headers),
        urlsafe_b64encode(token).decode(),
        max_age=None if token else 0,
        httponly=True,
        samesite="strict",
        secure=request.headers.get("origin", "").startswith("https:"),
    )
    return answer
