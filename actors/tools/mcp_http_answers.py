"""HTTP of MCP servers: the client, which connects to checked addresses only and sends headers to one origin only, and
the answers: their status, and their bodies, bounded and repaired.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx2

from callboard.actors.lending.addresses import AddressRefused, Reach, checked_addresses

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, Response


TOO_LARGE = "the answer has more than"
"""The beginning of the error for an answer over HTTP that is too large."""

SESSION_HEADER = "mcp-session-id"
"""The header that names the session of a request over HTTP."""

_UNREAD = ("Failed to parse JSON response: ", "Failed to parse SSE message: ")
"""The beginnings of the SDK's message when an answer over HTTP is not JSON-RPC."""

_LOST = ("SSE stream ended", "SSE stream failed")
"""The beginnings of the SDK's message when an answer over HTTP ended before the message was complete."""


_NO_SESSION = re.compile(
    r"(?=.*\bsession)(?=.*(valid|not found|unknown|unrecognized|expired|missing|required|not exist|no such|closed"
    r"|terminated|initialized))|server (is )?not initialized",
    re.IGNORECASE | re.DOTALL,
)
"""The text of an answer with status 400 by which servers say that they do not know the session."""

_OTHER_FAULTS = (-32601, -32602)
"""Codes of JSON-RPC errors about the request itself: unknown method, invalid parameters."""


class HttpState:
    """The newest status that is an error, and whether the server has forgotten the session. ``refused`` has the ids of
    the requests that it refused for that reason."""

    def __init__(self, bytes_max: int) -> None:
        self.status: int | None = None
        self.is_over = False
        self.refused: set[str] = set()
        self._bytes_max = bytes_max

    async def take_answer(self, response: "Response") -> None:
        """Take the head of an HTTP answer."""
        if response.request.method != "POST":
            return
        response.stream = _body(response, self._bytes_max)
        if response.is_error:
            self.status = response.status_code
        if SESSION_HEADER in response.request.headers and await _says_forgotten(response):
            self.is_over = True
            asked = _request_id(response)
            if asked is not None:
                self.refused.add(asked)


async def _says_forgotten(response: "Response") -> bool:
    """Return whether an answer says that the server no longer knows the session of the request.

    That is status 404 (MCP specification, *Transports*, "Session Management"). Many servers answer with status 400.
    """
    import httpx2

    if response.status_code not in (400, 404):
        return False
    try:
        text = (await response.aread()).decode("utf-8", "replace")
    except httpx2.HTTPError:
        text = ""
    try:
        code = json.loads(text)["error"]["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        code = None
    if code in _OTHER_FAULTS:
        return False
    return response.status_code == 404 or _NO_SESSION.search(text) is not None


def _request_id(response: "Response") -> str | None:
    """Return the id of the request that an answer is for; None for a notification."""
    try:
        return str(json.loads(response.request.content)["id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def unread(message: str) -> str | None:
    """Return why an answer over HTTP could not be read, if that is what an error of the SDK says."""
    start = next((start for start in _UNREAD if message.startswith(start)), None)
    if start is None:
        return None
    # The text after the first lines quotes the input and links to the manual of the parser.
    lines = [line.strip().split(" [type=")[0] for line in message.removeprefix(start).splitlines()]
    told = [line for line in lines if line and "validation error" not in line and not line.startswith("For further")]
    return told[-1] if told else "it is not JSON-RPC"


def is_lost(message: str) -> bool:
    """Return whether an error of the SDK means that a connection ended in the middle of an answer."""
    return message.startswith(_LOST)


def _body(response: "Response", bytes_max: int) -> "AsyncByteStream":
    """Bound what is read of an HTTP answer, because it is held in memory until its end, and repair its text: whole, or
    line by line where each event is to arrive at once. A compressed body is only bounded."""
    import httpx2

    from callboard.actors.tools.mcp_lines import repair_json  # with the SDK's types, which take long to import

    stream: Any = response.stream
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    by_line = response.headers.get("content-type", "").lower().startswith("text/event-stream")

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size, held = 0, bytearray()
            async for chunk in stream:
                size += len(chunk)
                if size > bytes_max:
                    raise httpx2.StreamError(f"{TOO_LARGE} {bytes_max} bytes")
                held += chunk
                end = len(held) if not is_plain else held.rfind(b"\n") + 1 if by_line else 0
                if end:
                    yield _text(bytes(held[:end]))
                    del held[:end]
            if held:
                yield _text(bytes(held))

        async def aclose(self) -> None:
            await stream.aclose()

    def _text(data: bytes) -> bytes:
        return repair_json(data) if is_plain else data

    return Body()


PORTS = {"http": 80, "https": 443}


def origin_of(url: httpx2.URL) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL."""
    return url.scheme, url.raw_host.decode("ascii").lower(), url.port or PORTS.get(url.scheme, 0)


async def check_url(url: str, reach: Reach) -> None:
    """Check that a URL may be requested.

    :raises AddressRefused: if its host has an address that is not permitted
    :raises ValueError: if it is not an http or https URL with a host
    :raises OSError: if its host cannot be resolved
    """
    try:
        scheme, host, port = origin_of(httpx2.URL(url))
    except httpx2.InvalidURL as error:
        raise ValueError(f"{url!r} cannot be read as a URL: {error}") from error
    if scheme not in PORTS or not host:
        raise ValueError(f"{url!r} is not an http or https URL with a host")
    await checked_addresses(host, port, reach)


def client(
    url: str, headers: Mapping[str, str], reach: Reach, timeout: httpx2.Timeout, answered: Callable[..., Any]
) -> httpx2.AsyncClient:
    """Return a client for one MCP server; ``answered`` is called with each response."""
    transport = _Guarded(url, headers, reach)
    return httpx2.AsyncClient(transport=transport, timeout=timeout, event_hooks={"response": [answered]})


class _Guarded(httpx2.AsyncBaseTransport):
    """Checks where a request goes, adds the headers of the source if it goes to the server, and sends it."""

    def __init__(self, url: str, headers: Mapping[str, str], reach: Reach) -> None:
        self._origin = origin_of(httpx2.URL(url))
        self._headers = headers
        self._reach = reach
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        scheme, host, port = origin_of(request.url)
        try:
            addresses = await checked_addresses(host, port, self._reach)
        except AddressRefused as refused:
            raise httpx2.ConnectError(f"the request is refused: {refused}") from refused
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        headers = request.headers.copy()
        if (scheme, host, port) == self._origin:
            headers.update(self._headers)
        headers["host"] = request.url.netloc.decode("ascii")
        extensions = {**request.extensions, "sni_hostname": host}  # the certificate is checked against the name
        for k, address in enumerate(addresses):
            try:
                return await self._inner.handle_async_request(
                    httpx2.Request(
                        request.method,
                        request.url.copy_with(host=address),
                        headers=headers,
                        stream=request.stream,
                        extensions=extensions,
                    )
                )
            except httpx2.ConnectError:
                if k == len(addresses) - 1:
                    raise
        raise httpx2.ConnectError(f"{host} has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()
