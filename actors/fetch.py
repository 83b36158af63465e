"""Fetching a text from a URL, for sources: guarded, bounded in time and size, with few retries.

Every hop, redirects included, is resolved and checked (`addresses`) and connected to at the checked address; a token
goes only to the host it was given for.
"""

import codecs
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from callboard.actors.lending.addresses import AddressRefused, checked_addresses
from callboard.actors.trust import trusted_context
from callboard.bus import tracecontext
from callboard.lib.text_bytes import plain_text

if TYPE_CHECKING:
    import httpx2

FETCH_TIMEOUT_S = 10.0
"""How long a fetch may take, with its retries and redirects (workflow specification, *Sources*)."""

REDIRECTS_MAX = 5
RETRY_PAUSES_S = (0.25, 1.0)
"""The pauses before a second and a third try, after a 5xx answer or a network error."""

ACCEPT = "text/plain, text/markdown, */*"

_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


class FetchFailed(Exception):
    """A URL gave no text. ``code`` is the specification's; ``retryable`` says whether a later attempt may succeed."""

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class FetchRules:
    """The limits of the addresses that sources may fetch on a worker.

    ``tokens`` are bearer tokens by host (``host``, or ``host:port`` for other than the scheme's port); ``allow_hosts``
    may have addresses that are not public.
    """

    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow_hosts: Set[str] = frozenset()
    bytes_max: int = 4 * 1024 * 1024
    timeout_s: float = FETCH_TIMEOUT_S


async def fetch_text(url: str, rules: FetchRules) -> str:
    """Return the text at an http or https URL.

    :raises FetchFailed: ``SOURCE_URL_UNREACHABLE``, ``SOURCE_URL_HTTP_ERROR``, ``SOURCE_URL_AUTH_REQUIRED``,
        ``SOURCE_URL_BLOCKED``, ``SOURCE_TOO_LARGE``
    """
    import httpx2

    try:
        with anyio.fail_after(rules.timeout_s):
            # No proxies from the environment: through a proxy, the checked address would not be the one reached.
            async with httpx2.AsyncClient(verify=trusted_context(), trust_env=False, timeout=rules.timeout_s) as client:
                for pause_s in RETRY_PAUSES_S:
                    try:
                        return await _follow(client, url, rules)
                    except FetchFailed as failed:
                        if not failed.retryable:
                            raise
                    await anyio.sleep(pause_s)
                return await _follow(client, url, rules)
    except TimeoutError:
        message = f"{url} did not answer within {rules.timeout_s:g} s"
        raise FetchFailed("SOURCE_URL_UNREACHABLE", message, retryable=True) from None


async def _follow(client: "httpx2.AsyncClient", url: str, rules: FetchRules) -> str:
    import httpx2

    try:
        place = httpx2.URL(url)
        for _ in range(REDIRECTS_MAX + 1):
            answer = await _get(client, place, rules)
            if isinstance(answer, str):
                return answer
            place = answer
    except httpx2.InvalidURL as error:
        raise FetchFailed("SOURCE_URL_BLOCKED", f"{url} is, or redirects to, an invalid URL: {error}") from error
    except AddressRefused as refused:
        raise FetchFailed("SOURCE_URL_BLOCKED", f"{url} is refused: {refused}") from refused
    except (httpx2.TransportError, OSError) as error:
        message = f"{url} cannot be reached: {type(error).__name__}: {error}"
        raise FetchFailed("SOURCE_URL_UNREACHABLE", message, retryable=True) from error
    raise FetchFailed("SOURCE_URL_HTTP_ERROR", f"{url} is redirected more than {REDIRECTS_MAX} times")


async def _get(client: "httpx2.AsyncClient", url: "httpx2.URL", rules: FetchRules) -> "str | httpx2.URL":
    """Make one request; return the text, or where it is redirected to."""
    if url.scheme not in _PORTS or not url.host:
        raise FetchFailed("SOURCE_URL_BLOCKED", f"{url} is not an http or https URL with a host")
    addresses = await checked_addresses(url.host, url.port or _PORTS[url.scheme], rules.allow_hosts)
    headers = {"Accept": ACCEPT, "Host": url.netloc.decode("ascii"), **tracecontext.headers()}
    if token := token_for(url, rules):
        headers["Authorization"] = f"Bearer {token}"
    response = await _connect(client, url, addresses, headers)
    try:
        status = response.status_code
        if status in _REDIRECTS and "location" in response.headers:
            return url.join(response.headers["location"])
        if status in (401, 403):
            remedy = f"configure a token for the host {headers['Host']}"
            raise FetchFailed("SOURCE_URL_AUTH_REQUIRED", f"{url} answered {status}; {remedy}")
        if not response.is_success:
            raise FetchFailed("SOURCE_URL_HTTP_ERROR", f"{url} answered {status}", retryable=status >= 500)
        return await _text(response, str(url), rules.bytes_max)
    finally:
        await response.aclose()


def token_for(url: "httpx2.URL", rules: FetchRules) -> str:
    """Return the bearer token that a request sends, or an empty text.

    The author of a URL may write http: a token goes unencrypted only to a host that is listed with its port.
    """
    token = rules.tokens.get(url.netloc.decode("ascii"), "")
    return token if url.scheme == "https" or url.port is not None else ""


async def _connect(
    client: "httpx2.AsyncClient", url: "httpx2.URL", addresses: list[str], headers: dict[str, str]
) -> "httpx2.Response":
    """Send a request to the first of the addresses that takes a connection."""
    import httpx2

    for k, address in enumerate(addresses):
        request = client.build_request("GET", url.copy_with(host=address), headers=headers)
        request.extensions["sni_hostname"] = url.host  # the certificate is checked against the name, not the address
        try:
            return await client.send(request, stream=True)
        except httpx2.ConnectError:
            if k == len(addresses) - 1:
                raise
    raise OSError(f"{url.host} has no address")


async def _text(response: "httpx2.Response", url: str, bytes_max: int) -> str:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > bytes_max:
            raise FetchFailed("SOURCE_TOO_LARGE", f"{url} has more than {bytes_max} bytes")
    charset = response.charset_encoding or "utf-8"
    try:
        codecs.lookup(charset)
    except LookupError:
        charset = "utf-8"
    return plain_text(content.decode(charset, "replace"))
