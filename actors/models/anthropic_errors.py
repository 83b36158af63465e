"""Anthropic's failures: the failures of the model port for the exceptions of its SDK.

An error inside a stream arrives under status 200 and is known by its type only.
"""

from collections.abc import Mapping

from callboard.actors.models.request_retries import TryFailed
from callboard.actors.models.trouble import TOO_LONG, TRANSPORT, entry_of, try_failed

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
    "anthropic.ContentTooLargeError": TOO_LONG,
    "anthropic.UnprocessableEntityError": "model.bad_request",
    "anthropic.RateLimitError": "model.rate_limited",
    "anthropic.RequestHeaderFieldsTooLargeError": "model.bad_request",
    "anthropic.ClientClosedRequestError": "model.unreachable",
    "anthropic.InternalServerError": "model.overloaded",
    "anthropic.HTTPNotImplementedError": "model.bad_request",
    "anthropic.ServiceUnavailableError": "model.overloaded",
    "anthropic.GatewayTimeoutError": "model.timeout",
    "anthropic.OverloadedError": "model.overloaded",
    **TRANSPORT,
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
"""Codes by the type of an error inside a stream; any other becomes ``model.overloaded``, the provider's trouble."""


def failure_of(error: Exception) -> TryFailed | None:
    """Return the failure for an exception that comes from the SDK or through it; None for any other, which is a bug."""
    entry = entry_of(type(error), CODE_OF)
    if entry is None:
        return None
    code = CODE_OF[entry]
    status: int | None = getattr(error, "status_code", None)
    error_type: str | None = getattr(error, "type", None)
    if status is not None and status < 400:
        code = CODE_OF_TYPE.get(error_type or "", "model.overloaded")
    details = {
        "status": status,
        "type": error_type,
        "error_code": getattr(error, "error_code", None),
        "request_id": getattr(error, "request_id", None),
    }
    return try_failed(error, code, message=getattr(error, "api_message", None), details=details)
