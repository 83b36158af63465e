"""Failures of providers: how an exception of an SDK, or an error code of an API, becomes a code of the model port.

Exceptions are looked up by the name of their class or of its nearest listed ancestor, so that nothing here needs an
import of any SDK; each provider has its table. Exceptions of the HTTP client are the same for all.

The message of an error is found in a body of any shape: that of each API, and those of gateways, web frameworks and
servers with a compatible API: ``{"error": "…"}``, ``{"detail": [{"loc": […], "msg": "…"}]}``, ``{"message": "…"}``,
plain text, a page in HTML.
"""

import email.utils
import math
import re
import time
from collections.abc import Mapping
from html import unescape
from typing import Any

import msgspec

from callboard.actors.models.request_retries import TryFailed
from callboard.bus.effects import Failure
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_text

MESSAGE_CHARS_MAX = 2000
"""How much of a provider's error text enters a failure, in characters."""

TRANSPORT: Mapping[str, str] = {
    "httpx2.TimeoutException": "model.timeout",
    "httpx2.HTTPError": "model.unreachable",
    "httpx2.StreamError": "model.unreachable",
    "httpx2.InvalidURL": "model.bad_request",
    "json.JSONDecodeError": "model.bad_reply",
    "builtins.UnicodeDecodeError": "model.bad_reply",
}
"""Exceptions that an SDK lets through while it reads a stream."""

PASSING = frozenset({"model.overloaded", "model.rate_limited", "model.timeout", "model.unreachable"})
"""Failures that may not occur in the next try."""

TOO_LONG = "model.context_too_long"
"""The code of a request with more tokens than the model takes."""

_NAMES_ITS_ADDRESS = frozenset({"model.unreachable", "model.timeout"})
"""Failures that may be due to a wrong address."""

_CODE_OF_STATUS: Mapping[int, str] = {
    401: "model.auth",
    402: "model.auth",
    403: "model.auth",
    404: "model.unknown",
    408: "model.timeout",
    409: "model.overloaded",
    429: "model.rate_limited",
    499: "model.unreachable",
    501: "model.bad_request",
    504: "model.timeout",
}


def code_of_status(status: int) -> str:
    """Return the code of an HTTP status that is an error."""
    return _CODE_OF_STATUS.get(status, "model.bad_request" if status < 500 else "model.overloaded")


def entry_of(kind: type[BaseException], codes: Mapping[str, str]) -> str | None:
    """Return the entry of a table for a class of exceptions, None if the table has none."""
    names = (f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__)
    return next((name for name in names if name in codes), None)


def code_of_exception(error: Exception, codes: Mapping[str, str], status: object) -> str | None:
    """Return the code for an exception that a table lists, None for any other. The status of its answer, if that is an
    error, decides before the class."""
    entry = entry_of(type(error), codes)
    if entry is None:
        return None
    return code_of_status(status) if isinstance(status, int) and status >= 400 else codes[entry]


def try_failed(
    error: Exception, code: str, *, message: object = None, details: Mapping[str, Any], after_s: float | None = None
) -> TryFailed:
    """Return the failure of a try for an exception whose code is known.

    ``message`` is the provider's own text as its SDK found it; without one, it is looked for in the body of the answer.
    Of ``details`` only texts and numbers are kept. If the headers of the answer say whether to try again, that decides,
    and not the code. The wait is that of the headers, or else ``after_s``.
    """
    response: Any = getattr(error, "response", None)
    headers: Mapping[str, str] = getattr(response, "headers", {})
    again = code in PASSING
    if (hint := headers.get("x-should-retry")) in ("true", "false"):
        again = hint == "true"
    words = _message(error, message, response)
    code = specific_code(code, words)
    if response is None and code in _NAMES_ITS_ADDRESS and (address := _address(error)):
        words = f"{words} (at {address})"
    failure = Failure(
        code,
        words,
        details={name: value for name, value in details.items() if isinstance(value, str | int)},
        retryable=again,
    )
    wait = retry_after_s(headers, time.time())
    return TryFailed(failure, again=again, after_s=after_s if wait is None else wait)


def specific_code(code: str, words: str) -> str:
    """Return the code of a refused request, made more specific if its text says that it is too long for the model."""
    return TOO_LONG if code == "model.bad_request" and is_too_long(words) else code


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds a provider asks to wait: ``retry-after-ms``, else ``retry-after`` (seconds or a date). None if
    it does not ask, or if the time is zero or has passed already.

    ``now`` is the time in seconds since 1970, for a date. See RFC 9110, section 10.2.3.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    left = None if date is None else email.utils.mktime_tz(date) - now
    return left if left is not None and left > 0 else None


def _message(error: Exception, words: object, response: Any) -> str:
    """Return the provider's own text if there is any; else the exception's, with that of its cause."""
    if not isinstance(words, str) or not words.strip():
        words = words_of(_body(response))
        status = getattr(response, "status_code", None)
        words = f"{words} (status {status})" if words and status else words
    if not words:
        words = str(error) or type(error).__name__
        if error.__cause__ is not None:
            words = f"{words} ({type(error.__cause__).__name__}: {error.__cause__})"
    return normalise_text(words)[:MESSAGE_CHARS_MAX]


def _address(error: Exception) -> str:
    """Where the request went: scheme, host and port, without what an address may hold in secret. Empty if unknown."""
    try:
        url: Any = error.request.url  # pyright: ignore[reportAttributeAccessIssue] - of any SDK, or of its HTTP client
        return f"{url.scheme}://{url.netloc.decode()}"
    except (AttributeError, RuntimeError):  # it belongs to no request
        return ""


def _body(response: Any) -> str:
    """Return the body of an error's answer, if it has been read."""
    try:
        text = response.text
    except (AttributeError, RuntimeError):  # no answer, or a stream that has not been read
        return ""
    return text if isinstance(text, str) else ""


WORDS_CHARS_MAX = 2_000
"""Maximum length of a body's text in a failure, in characters."""

_DEPTH_MAX = 6
_ITEMS_MAX = 5
_NAMES = (
    *("message", "msg", "error_message", "errorMessage", "error_description", "detail", "error", "errors"),
    *("description", "reason", "title", "Message"),
)
"""Members that hold the text of an error, the most specific first."""

_TAG = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)"
    r"|maximum context"
    r"|(?:prompt|input|request|conversation|messages?)\b.{0,40}\btoo (?:long|large)\b"
    r"|too many (?:input |prompt )?tokens"
    r"|token count\b.{0,60}\bexceeds"
    r"|exceeds?\b.{0,60}\b(?:maximum|limit|max)\b.{0,40}\btokens"
    r"|exceeds? the (?:maximum )?(?:request size|size)"
    r"|reduce the length of the (?:messages|prompt|input)"
    r"|request_too_large",
    re.IGNORECASE | re.DOTALL,
)


def words_of(body: str) -> str:
    """Return the message in a body, shortened; empty if there is none."""
    text = normalise_text(body).strip()
    try:
        value: JSON = decode_json(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    found = said_in(value) if value is not None else ""
    return (found or _plain(text))[:WORDS_CHARS_MAX]


def said_in(value: JSON, depth: int = 0) -> str:
    """Return the message in an error's value; empty if there is none."""
    if depth > _DEPTH_MAX:
        return ""
    match value:
        case str():
            return value.strip()
        case list():
            found = [words for item in value[:_ITEMS_MAX] if (words := said_in(item, depth + 1))]
            return "; ".join(found)
        case {"loc": list() as place, "msg": str(words)}:
            return f"{'.'.join(map(str, place))}: {words}"
        case {**members}:
            return next((words for name in _NAMES if (words := said_in(members.get(name), depth + 1))), "")
        case _:
            return ""


def is_error(body: Mapping[str, JSON]) -> bool:
    """Return whether the JSON of an answer, whatever its status, is an error."""
    return (
        body.get("type") == "error" or bool(body.get("error")) or set(body) <= {"detail", "message", "errors", "code"}
    )


def is_too_long(words: str) -> bool:
    """Return whether an error says that a request has more tokens than the model takes."""
    return _TOO_LONG.search(words) is not None


def _plain(text: str) -> str:
    """Return a text, or the text of a page, on one line."""
    if text.startswith("<"):
        text = unescape(_TAG.sub(" ", text[: 8 * WORDS_CHARS_MAX]))
    return " ".join(text.split())
