"""The HTTP client of MCP servers: it connects to checked addresses only, and sends headers to one origin only.

The host of every request is resolved and checked (`callboard.actors.lending.addresses`), also after a redirect, and
connected to at an address that was checked. The headers of a source go to the origin of the source's URL and to no
other server. No proxy is used: through a proxy, the checked address would not be the one that is reached.
"""

from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from callboard.actors.lending.addresses import AddressRefused, Reach, checked_addresses

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
