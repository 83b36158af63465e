"""Answers over HTTP: JSON, and errors as the service has them, with the status that they carry."""

from typing import Any

import msgspec
from starlette.responses import Response

from callboard.runtime.api.outcomes import error_body
from callboard.runtime.api.verbs import ApiError

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def answer(value: Any, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, HEADERS, "application/json")


def refusal(error: ApiError) -> Response:
    """Return an error as JSON."""
    more = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if (wait_s := error.more.get("retry_after_s")) is not None:
        more["Retry-After"] = str(wait_s)
    return Response(error_body(error), error.status, HEADERS | more, "application/json")
