"""HTTP responses of the ``http`` provider: a value, or a failure that says what to do. Pure."""

import base64
import codecs
import datetime as dt
import email.utils
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.actors.providers.durations import duration_text
from callboard.actors.providers.provider import Answer, failure, success
from callboard.lib.json_decoder import decode_json

if TYPE_CHECKING:
    import httpx

    from callboard.actors.providers.http_request import Asked

PREFIX = "Provider.Call.Http"

_AGAIN = frozenset({408, 425, 500, 502, 503, 504})
"""Statuses after which another try may succeed."""

_TEXTUAL = ("text/", "application/xml", "application/javascript", "application/yaml")

RETRY_AFTER_MAX_S = 86_400.0 * 365


def answer_of(asked: "Asked", response: "httpx.Response", content: bytes, metadata: Mapping[str, Any]) -> Answer:
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


def _body(response: "httpx.Response", content: bytes) -> dict[str, Any]:
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
