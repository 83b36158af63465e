"""The ``http`` provider: one HTTP request, guarded, limited in time and size, never retried by the provider.

Every hop, redirects included, is resolved and checked (`callboard.actors.lending.addresses`) and connected to at the
checked address; a token goes only to the host it was given for. Retries belong to the flow: a response becomes a value,
or a failure that says what to do and whether another try may succeed.
"""

import base64
import codecs
import datetime as dt
import email.utils
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from callboard.actors.lending.addresses import AddressRefused, checked_addresses
from callboard.actors.providers.http_request import PORTS, HttpRequest, Unsendable, asked_of
from callboard.actors.providers.provider import Answer, Request, duration_text, failure, success
from callboard.actors.trust import trusted_context
from callboard.bus import tracecontext
from callboard.lib.json_decoder import decode_json

if TYPE_CHECKING:
    import httpx2

    from callboard.actors.providers.http_request import HttpRequest

HTTP = "mwl:provider.call/callboard/http/v1"

ALLOWING = "the operator of the worker may list the host in its configuration, as allow_hosts below [providers.http]"
"""The remedy for an address that is not public."""

BYTES_MAX = 16 * 1024 * 1024
TIMEOUT_MAX_S = 600.0


@dataclass(frozen=True, slots=True)
class HttpRules:
    """The limits on the requests of flows.

    ``tokens`` are bearer tokens by host (``host``, or ``host:port`` for other than the scheme's port); they go over
    https, and over http to ``allow_hosts`` only, which are hosts whose addresses need not be public.
    """

    tokens: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow_hosts: Set[str] = frozenset()
    bytes_max: int = BYTES_MAX
    timeout_max_s: float = TIMEOUT_MAX_S


class _TooLarge(Exception):
    """A body exceeds its limit."""


class HttpProvider:
    """Makes HTTP requests. No connection is kept, so that none is used for another host."""

    def __init__(self, rules: HttpRules) -> None:
        self._rules = rules

    async def execute(self, request: Request) -> Answer:
        import httpx2

        metadata: dict[str, Any] = {}
        began = time.monotonic()
        try:
            asked = asked_of(request, self._rules.bytes_max, self._rules.timeout_max_s)
            with anyio.fail_after(asked.timeout_s):
                # No proxies from the environment: through one, the checked address would not be the one reached.
                async with httpx2.AsyncClient(verify=trusted_context(), trust_env=False, timeout=None) as client:
                    asked, response, content = await self._exchange(client, asked, metadata)
        except Unsendable as unsendable:
            return _failure(unsendable.code, str(unsendable), False, metadata)
        except AddressRefused as refused:
            return _failure("Refused", f"the request is refused: {refused}; {ALLOWING}", False, metadata)
        except TimeoutError:
            message = f"no response within {request.arguments.get('timeout', 'PT30S')}"
            return _failure("Timeout", message, True, metadata, type="timeout")
        except _TooLarge as error:
            return _failure("ResponseTooLarge", str(error), False, metadata)
        except httpx2.LocalProtocolError as error:
            return _failure("InvalidRequest", f"the request cannot be sent: {error}", False, metadata)
        except (httpx2.TransportError, httpx2.DecodingError, OSError) as error:
            message = f"the host cannot be reached: {type(error).__name__}: {error}"
            return _failure("ConnectionFailed", message, True, metadata)
        metadata["duration_ms"] = round((time.monotonic() - began) * 1000, 3)
        return answer_of(asked, response, content, metadata)

    async def _exchange(
        self, client: "httpx2.AsyncClient", asked: HttpRequest, metadata: dict[str, Any]
    ) -> "tuple[HttpRequest, httpx2.Response, bytes]":
        """Send a request, and the ones it is redirected to; return the last, its response and the body."""
        while True:
            response = await self._sent(client, asked)
            try:
                metadata |= {"status": response.status_code, "url": str(asked.url), "redirects": asked.followed}
                if request_id := response.headers.get("x-request-id"):
                    metadata["request_id"] = request_id
                location = response.headers.get("location")
                if location is None or not asked.follows(response.status_code):
                    return asked, response, await _content(response, asked)
                asked = asked.redirect(response.status_code, location)
            finally:
                await response.aclose()

    async def _sent(self, client: "httpx2.AsyncClient", asked: HttpRequest) -> "httpx2.Response":
        """Send a request to the first of its host's addresses that takes a connection."""
        import httpx2

        url = asked.url
        if url.scheme not in PORTS or not url.host:
            raise Unsendable(f"{url} is not an http or https URL with a host", "Refused")
        rules, netloc = self._rules, url.netloc.decode("ascii")
        addresses = await checked_addresses(url.host, url.port or PORTS[url.scheme], rules.allow_hosts)
        headers = {"user-agent": "callboard", "accept": "application/json, */*;q=0.5", **tracecontext.headers()}
        headers |= {**asked.headers, "host": netloc}
        private = bool({url.host, f"{url.host}:{url.port or PORTS[url.scheme]}"} & rules.allow_hosts)
        if (token := rules.tokens.get(netloc)) and (url.scheme == "https" or private):
            headers.setdefault("authorization", f"Bearer {token}")
        for k, address in enumerate(addresses):
            target = url.copy_with(host=address)
            request = client.build_request(asked.method, target, headers=headers, content=asked.content)
            request.extensions["sni_hostname"] = url.host  # the certificate is checked against the name
            try:
                return await client.send(request, stream=True)
            except httpx2.ConnectError:
                if k == len(addresses) - 1:
                    raise
        raise OSError(f"{url.host} has no address")


async def _content(response: "httpx2.Response", asked: HttpRequest) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > asked.bytes_max:
            raise _TooLarge(f"{asked.url.copy_with(query=None)} answers with more than {asked.bytes_max} bytes")
    return bytes(content)


def _failure(code: str, message: str, retryable: bool, metadata: dict[str, Any], type: str = "error") -> Answer:
    return failure(f"{PREFIX}.{code}", message, type=type, retryable=retryable, **metadata)


PREFIX = "Provider.Call.Http"

_AGAIN = frozenset({408, 425, 500, 502, 503, 504})
"""Statuses after which another try may succeed."""

_TEXTUAL = ("text/", "application/xml", "application/javascript", "application/yaml")

RETRY_AFTER_MAX_S = 86_400.0 * 365


def answer_of(asked: "HttpRequest", response: "httpx2.Response", content: bytes, metadata: Mapping[str, Any]) -> Answer:
    """Return the answer for a response: its value if the status is expected, else a failure."""
    value = {"status": response.status_code, "headers": dict(response.headers), **_body(response, content)}
    if asked.expects(response.status_code):
        return success(value, **metadata)
    status = response.status_code
    details = value
    wait_s = retry_after_s(response.headers, dt.datetime.now(dt.UTC)) if status in (429, 503) else None
    if wait_s is not None:
        details = {**value, "retryAfter": duration_text(wait_s)}
    where = f"{asked.method} {asked.url.copy_with(query=None)}"
    if status == 429:
        message = f"{where} asks for fewer requests (429)"
        return failure(f"{PREFIX}.Throttled", message, details=details, retryable=True, **metadata)
    message = f"{where} answered {status} {response.reason_phrase}".rstrip()
    return failure(f"{PREFIX}.NonSuccessStatus", message, details=details, retryable=status in _AGAIN, **metadata)


def retry_after_s(headers: Mapping[str, str], now: dt.datetime) -> float | None:
    """Return how long a server asks to wait, in seconds, or None: a number of seconds or a date (RFC 9110, 10.2.3)."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text), RETRY_AFTER_MAX_S)
    try:
        until = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=dt.UTC)
    return max(0.0, min((until - now).total_seconds(), RETRY_AFTER_MAX_S))


def _body(response: "httpx2.Response", content: bytes) -> dict[str, Any]:
    """Return the body as a value: parsed, as text, or in Base64 if it is neither."""
    if not content:
        return {"body": None}
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        with suppress(msgspec.DecodeError, RecursionError):
            return {"body": decode_json(content)}
    # A body that claims to be JSON, and is not, is returned as text.
    text = _text(content, response.charset_encoding, forced=kind.startswith(_TEXTUAL))
    if text is not None:
        return {"body": text}
    return {"body": base64.b64encode(content).decode("ascii"), "encoding": "base64"}


def _text(content: bytes, charset: str | None, *, forced: bool) -> str | None:
    try:
        name = codecs.lookup(charset or "utf-8").name
    except LookupError:
        name = "utf-8"
    try:
        return content.decode(name)
    except (UnicodeDecodeError, LookupError):
        return content.decode("utf-8", "replace") if forced else None
