"""HTTP requests of the ``http`` provider: made from a call's arguments, and changed by redirects. Pure."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from callboard.actors.providers.provider import seconds_of

if TYPE_CHECKING:
    import httpx2

    from callboard.actors.providers.provider import Request

TIMEOUT = "PT30S"
TIMEOUT_MIN_S = 0.001

REDIRECTS = 5

REDIRECTED = frozenset({301, 302, 303, 307, 308})

PORTS = {"http": 80, "https": 443}

_SEPARATORS = re.compile(r"/|\\|%2[fF]|%5[cC]")
"""What separates the segments of a path, also for servers that decode a path before they split it."""

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})
"""Headers that the connection needs and no author may set."""

_HARMLESS = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that are kept when a redirect leads to another host; all others may be meant for the first host only."""


class Unsendable(Exception):
    """The arguments do not make a valid request; ``code`` is the failure's."""

    def __init__(self, message: str, code: str = "InvalidRequest") -> None:
        super().__init__(message)
        self.code = code


class HttpRequest(Struct, frozen=True):
    """One request, and which responses are a success."""

    method: str
    url: "httpx2.URL"
    headers: Mapping[str, str]
    content: bytes | None
    timeout_s: float
    expect: list[int | str]
    redirects: int
    bytes_max: int
    followed: int = field(default=0)

    def expects(self, status: int) -> bool:
        return status in self.expect or f"{status // 100}xx" in self.expect

    def follows(self, status: int) -> bool:
        """Return whether a redirect of this status is followed; an expected one, or one that changes the method, is
        returned as the answer."""
        if status not in REDIRECTED or not self.redirects or status in self.expect:
            return False
        return status in (303, 307, 308) or self.method in _SAFE

    def redirect(self, status: int, location: str) -> "HttpRequest":
        """Return the request that a redirect leads to.

        :raises Unsendable: ``TooManyRedirects``; ``Refused`` if it gives up encryption, or sends a body to another host
        """
        import httpx2

        if self.followed == self.redirects:
            raise Unsendable(f"{self.url} is redirected more than {self.redirects} times", "TooManyRedirects")
        try:
            url = self.url.join(location)
        except httpx2.InvalidURL as error:
            raise Unsendable(f"{self.url} redirects to an invalid URL: {error}", "Refused") from error
        if self.url.scheme == "https" and url.scheme != "https":
            raise Unsendable(f"{self.url} redirects to {url}, which is not encrypted", "Refused")
        same = _origin(self.url) == _origin(url)
        method, content, headers = self.method, self.content, dict(self.headers)
        if status == 303 and method != "HEAD":
            method, content = "GET", None
            headers.pop("content-type", None)
            headers.pop("idempotency-key", None)
        if not same and (content is not None or method not in _SAFE):
            raise Unsendable(f"{self.url} redirects a {method} to another host, {url.host}", "Refused")
        if not same:
            headers = {name: value for name, value in headers.items() if name in _HARMLESS}
        return replace(self, method=method, url=url, content=content, headers=headers, followed=self.followed + 1)


def asked_of(request: "Request", bytes_max: int, timeout_max_s: float) -> HttpRequest:
    """Return the request that a call's arguments describe.

    :raises Unsendable: if they do not describe a valid request
    """
    arguments = request.arguments
    method: str = arguments.get("method", "GET")
    headers = _headers(arguments.get("headers", {}))
    content = _content(method, arguments, request.input, headers)
    if method not in _SAFE:
        headers.setdefault("idempotency-key", request.idempotency_key)
    timeout_s = max(TIMEOUT_MIN_S, min(seconds_of(arguments.get("timeout", TIMEOUT)), timeout_max_s))
    return HttpRequest(
        method,
        _url(arguments),
        headers,
        content,
        timeout_s,
        [int(one) if isinstance(one, float) else one for one in arguments.get("expect", ["2xx"])],
        int(arguments.get("redirects", REDIRECTS)),
        min(int(arguments.get("max_bytes", bytes_max)), bytes_max),
    )


def _url(arguments: dict[str, Any]) -> "httpx2.URL":
    import httpx2

    if "url" in arguments:
        text = arguments["url"]
        if "path" in arguments:
            raise Unsendable("path goes with base, not with url")
    else:
        base, path = arguments["base"], arguments.get("path", "")
        if any(unquote(segment) in (".", "..") for segment in _SEPARATORS.split(path.partition("?")[0])):
            raise Unsendable("the path leads away from the base")
        text = f"{base.rstrip('/')}/{path.lstrip('/')}" if path else base
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise Unsendable(f"{text!r:.200} is not a valid URL: {error}") from error
    if url.scheme not in PORTS or not url.host:
        raise Unsendable(f"{text!r:.200} is not an http or https URL with a host")
    if "base" in arguments and _origin(url) != _origin(httpx2.URL(arguments["base"])):
        raise Unsendable("the path leads away from the base")
    if url.userinfo:
        raise Unsendable("a URL may not contain a password: have the worker configured with a token for the host")
    return url.copy_merge_params(_query(arguments["query"])) if arguments.get("query") else url


def _query(query: dict[str, Any]) -> dict[str, list[str]]:
    listed = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
    texts = {name: [_text(one) for one in values if one is not None] for name, values in listed.items()}
    return {name: values for name, values in texts.items() if values}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(int(value) if isinstance(value, float) and value.is_integer() else value).decode()


def _headers(given: dict[str, str]) -> dict[str, str]:
    headers = {name.lower(): value for name, value in given.items()}
    if forbidden := sorted(set(headers) & _OURS):
        raise Unsendable(f"{', '.join(forbidden)} cannot be set: the connection needs them")
    for name, value in headers.items():
        if not name.isascii() or any(letter in value for letter in "\r\n\0"):
            raise Unsendable(f"the header {name!r} cannot be sent")
    return headers


def _content(method: str, arguments: dict[str, Any], input: Any, headers: dict[str, str]) -> bytes | None:
    if "body" in arguments:
        return arguments["body"].encode()
    if "json" not in arguments and method not in _WITH_BODY:
        return None
    headers.setdefault("content-type", "application/json")
    return msgspec.json.encode(arguments.get("json", input))


def _origin(url: "httpx2.URL") -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or PORTS.get(url.scheme, 0)
