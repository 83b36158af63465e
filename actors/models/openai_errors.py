"""OpenAI's failures: the failures of the model port for the exceptions of its SDK, and errors within its streams.

Compatible servers word their errors differently: the status decides, unless the error has a known code.
"""

from collections.abc import Mapping, Sequence

from callboard.actors.models.request_retries import TryFailed
from callboard.actors.models.trouble import (
    PASSING,
    TOO_LONG,
    TRANSPORT,
    code_of_exception,
    said_in,
    specific_code,
    try_failed,
)
from callboard.bus.effects import Failure
from callboard.lib.text import normalise_text

CODE_OF: Mapping[str, str] = {
    "openai.OpenAIError": "model.bad_request",
    "openai.APIError": "model.bad_reply",
    "openai.APIConnectionError": "model.unreachable",
    "openai.APITimeoutError": "model.timeout",
    "openai.SubjectTokenProviderError": "model.auth",
    **TRANSPORT,
}
"""Codes by exception; that of an ``APIStatusError`` is its status's."""

CODE_OF_WORD: Mapping[str, str] = {
    "insufficient_quota": "model.auth",
    "invalid_api_key": "model.auth",
    "model_not_found": "model.unknown",
    "server_error": "model.overloaded",
    "rate_limit_exceeded": "model.rate_limited",
    "vector_store_timeout": "model.timeout",
    "invalid_prompt": "model.bad_request",
    "context_length_exceeded": TOO_LONG,
    "exceed_context_size_error": TOO_LONG,
    "data_residency_mismatch": "model.bad_request",
    "bio_policy": "model.refused",
    "content_filter": "model.refused",
    "content_policy_violation": "model.refused",
    "image_content_policy_violation": "model.refused",
    "misalignment_policy_violation": "model.refused",
}
"""Codes by the ``code``, or else the ``type``, of an error."""


def failure_of(error: Exception) -> TryFailed | None:
    """Return the failure for an exception that comes from the SDK or through it; None for any other, which is a bug."""
    status: int | None = getattr(error, "status_code", None)
    code = code_of_exception(error, CODE_OF, status)
    if code is None:
        return None
    words = [getattr(error, name, None) for name in ("code", "type")]
    body = getattr(error, "body", None)
    if isinstance(body, Mapping) and (status is None or status < 400):
        code = "model.overloaded"  # an error within the stream
    details = {
        "status": status,
        "type": words[1],
        "error_code": words[0],
        "param": getattr(error, "param", None),
        "request_id": getattr(error, "request_id", None),
    }
    message = body.get("message") if isinstance(body, Mapping) else None
    return try_failed(error, code_of(words, code), message=message, details=details)


def failure_in_stream(error: Mapping[str, object]) -> TryFailed:
    """Return the failure for an error within a stream; an unknown one counts as the provider's trouble."""
    words = [error.get(name) for name in ("code", "type")]
    word = words[0]
    message = said_in(dict(error)) or f"the provider failed: {word}"
    code = specific_code(code_of(words, "model.overloaded"), message)
    failure = Failure(
        code,
        normalise_text(message),
        details={"error_code": word} if isinstance(word, str) else {},
        retryable=code in PASSING,
    )
    return TryFailed(failure, again=code in PASSING)


def code_of(words: Sequence[object], otherwise: str) -> str:
    """Return the code of an error's first known word."""
    return next((CODE_OF_WORD[word] for word in words if isinstance(word, str) and word in CODE_OF_WORD), otherwise)
