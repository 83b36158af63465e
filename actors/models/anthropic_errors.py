"""Anthropic's failures in our words: the one place where the SDK's exceptions become codes of the model port.

Exceptions are looked up by the name of their class or of its nearest listed ancestor, so that this module needs no
import of the SDK. An error inside a stream arrives under status 200 and is known by its type only.
"""

import email.utils
import math
import time
from collections.abc import Mapping
from typing import Any

from callboard.actors.models.retrying import TryFailed
from callboard.bus.effects import Failure

MESSAGE_CHARS_MAX = 2000
"""How much of a provider's error text enters a failure, in characters."""

CODE_OF: Mapping[str, str] = {
    "anthropic.AnthropicError": "model.bad_request",
    "anthropic.APIError": "model.bad_reply",
    "anthropic.APIResponseValidationError": "model.bad_reply",
    "anthropic.APIWebhookValidationError": "model.bad_reply",
    "anthropic.APIConnectionError": "model.unreachable",
    "anthropic.APITimeoutError": "model.timeout",
    "anthropic.RetryableError": "model.unreachable",
    "anthropic.CredentialsError": "model.auth",
    "anthropic.APIStatusError": "model.bad_request",
    "anthropic.BadRequestError": "model.bad_request",
    "anthropic.AuthenticationError": "model.auth",
    "anthropic.PaymentRequiredError": "model.auth",
    "anthropic.PermissionDeniedError": "model.auth",
    "anthropic.NotFoundError": "model.unknown",
    "anthropic.RequestTimeoutError": "model.timeout",
    "anthropic.ConflictError": "model.overloaded",
    "anthropic.PreconditionFailedError": "model.bad_request",
    "anthropic.ContentTooLargeError": "model.bad_request",
    "anthropic.UnprocessableEntityError": "model.bad_request",
    "anthropic.RateLimitError": "model.rate_limited",
    "anthropic.RequestHeaderFieldsTooLargeError": "model.bad_request",
    "anthropic.ClientClosedRequestError": "model.unreachable",
    "anthropic.InternalServerError": "model.overloaded",
    "anthropic.HTTPNotImplementedError": "model.bad_request",
    "anthropic.ServiceUnavailableError": "model.overloaded",
    "anthropic.GatewayTimeoutError": "model.timeout",
    "anthropic.OverloadedError": "model.overloaded",
    # What the SDK lets through while it reads a stream.
    "httpx2.TimeoutException": "model.timeout",
    "httpx2.HTTPError": "model.unreachable",
    "httpx2.StreamError": "model.unreachable",
    "httpx2.InvalidURL": "model.bad_request",
    "json.JSONDecodeError": "model.bad_reply",
    "builtins.UnicodeDecodeError": "model.bad_reply",
}

CODE_OF_TYPE: Mapping[str, str] = {
    "invalid_request_error": "model.bad_request",
    "authentication_error": "model.auth",
    "billing_error": "model.auth",
    "permission_error": "model.auth",
    "not_found_error": "model.unknown",
    "rate_limit_error": "model.rate_limited",
    "timeout_error": "model.timeout",
    "api_error": "model.overloaded",
    "overloaded_error": "model.overloaded",
    "memory_precondition_failed_error": "model.bad_request",
    "memory_path_conflict_error": "model.bad_request",
    "conflict_error": "model.overloaded",
}
"""Codes by the type of an error inside a stream; any other is the provider's trouble, ``model.overloaded``."""

PASSING = frozenset({"model.overloaded", "model.rate_limited", "model.timeout", "model.unreachable"})
"""Failures that may be gone at the next try."""


def entry_of(kind: type[BaseException]) -> str | None:
    """Return the entry of `CODE_OF` that speaks for a class of exceptions, None if it is not of this trade."""
    names = (f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__)
    return next((name for name in names if name in CODE_OF), None)


def try_failed(error: Exception) -> TryFailed | None:
    """Read an exception of the SDK, or one it lets through; None for any other, which is our own bug."""
    entry = entry_of(type(error))
    if entry is None:
        return None
    code = CODE_OF[entry]
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = getattr(response, "headers", {})
    status: int | None = getattr(error, "status_code", None)
    error_type: str | None = getattr(error, "type", None)
    if status is not None and status < 400:
        code = CODE_OF_TYPE.get(error_type or "", "model.overloaded")
    again = code in PASSING
    if (hint := headers.get("x-should-retry")) in ("true", "false"):
        again = hint == "true"
    details: dict[str, Any] = {
        "status": status,
        "type": error_type,
        "error_code": getattr(error, "error_code", None),
        "request_id": getattr(error, "request_id", None),
    }
    failure = Failure(
        code,
        _message(error),
        details={name: value for name, value in details.items() if isinstance(value, str | int)},
        retryable=again,
    )
    return TryFailed(failure, again=again, after_s=retry_after_s(headers, time.time()))


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds a provider asks to wait: ``retry-after-ms``, else ``retry-after`` (seconds or a date).

    ``now`` is the time in seconds since 1970, for a date. See RFC 9110, section 10.2.3.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if date is None else max(email.utils.mktime_tz(date) - now, 0.0)


def _message(error: Exception) -> str:
    """The provider's own words where there are any; else the exception's, with what it was raised from."""
    words = getattr(error, "api_message", None)
    if not isinstance(words, str) or not words:
        words = str(error) or type(error).__name__
        if error.__cause__ is not None:
            words = f"{words} ({type(error.__cause__).__name__}: {error.__cause__})"
    return words[:MESSAGE_CHARS_MAX]
