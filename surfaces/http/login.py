"""Login: a page's token, kept by the browser in a cookie that no script can read.

The page gets its token in the fragment of its address, which is sent nowhere, and brings it here once. From then on
the browser brings it with each request; whoever guards what lies behind sees it as the bearer token that it is.
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
from callboard.service.api.verbs import ApiError
from callboard.surfaces.http.access import Access
from callboard.surfaces.http.answers import HEADERS, refusal
from callboard.surfaces.http.request_body import received

COOKIE = "callboard"
"""How the cookie's name begins; the port is the rest, since cookies of a host are shared by all its ports."""

TOKEN_BYTES_MAX = 2_048
PATH = "/login"


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a login; without a token the cookie is forgotten."""

    token: str = ""


class Login:
    """In front of an application: answers ``POST /login``, and turns the cookie of a request into its bearer token.

    A token is told to be none just as any request that brings it is.
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
                await self._access.subject(_bringing(token, request.scope))
        except ApiError as error:
            # Whoever brings another token has none any more; whoever cannot be known at the moment keeps theirs.
            return _keeping(b"", request, refusal(error)) if error.status == 401 else refusal(error)
        return _keeping(token, request, Response(status_code=204, headers=HEADERS))


def with_token(scope: Scope) -> Scope:
    """Return a request with the token of its cookie, if it has one, as the bearer token that it is.

    Whoever asks who makes a request asks of this one: a cookie that is no token of ours does not come from nobody.
    """
    token = kept(Headers(scope=scope))
    return _bringing(token, scope) if token is not None else scope


def kept(headers: Mapping[str, str]) -> bytes | None:
    """Return the token that a request brings as a cookie; None if it brings none, or another one by itself."""
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


def _bringing(token: bytes, scope: Scope) -> Scope:
    """A request that brings a token by itself."""
    others = [one for one in scope["headers"] if one[0] != b"authorization"]
    return {**scope, "headers": [*others, (b"authorization", b"Bearer " + token)]}


async def _read_login(request: Request) -> _Login:
    """Read the body of a login.

    :raises ApiError: if it is too large or too slow, or none
    """
    body = await received(request, TOKEN_BYTES_MAX)
    try:
        return decode_json(body, type=_Login)
    except JSON_ERRORS as error:
        raise ApiError(400, "api.malformed", str(error), expected='{"token": "…"}') from None


def _keeping(token: bytes, request: Request, answer: Response) -> Response:
    """An answer by which the browser keeps a token, or forgets the one that it has."""
    answer.set_cookie(
        _name(request.headers),
        urlsafe_b64encode(token).decode(),
        max_age=None if token else 0,
        httponly=True,
        samesite="strict",
        secure=request.headers.get("origin", "").startswith("https:"),
    )
    return answer
