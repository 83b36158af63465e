"""Builds HTTP responses: JSON, and the errors of the service with their status."""

import gzip
from typing import Any

import msgspec
from anyio import to_thread
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from callboard.service.operations.operation import ApiError, error_body

JSON = "application/json"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

GZIP_BYTES_MIN = 16 * 1024
"""Smallest answer in bytes that is compressed, for clients that accept gzip."""

GZIP_LEVEL = 5


RETRY_AFTER_S = 5
"""When to ask again after a 503 that does not say: a server that restarts, or elects a leader, takes some seconds."""


class Content(Struct, frozen=True):
    """An answer that is already encoded."""

    body: bytes
    media_type: str = JSON


def answer(value: Any, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, HEADERS | retry_after(status), JSON)


def retry_after(status: int, wait_s: int = RETRY_AFTER_S) -> dict[str, str]:
    """Return the header that says when to ask again, which answers with 503 have."""
    return {"Retry-After": str(wait_s)} if status == 503 else {}


async def fitting(request: Request, value: Any, status: int = 200) -> Response:
    """Return a value as JSON, or `Content` unchanged. A large answer is compressed if the client accepts gzip."""
    content = value if isinstance(value, Content) else Content(msgspec.json.encode(value))
    if len(content.body) < GZIP_BYTES_MIN or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(content.body, status, HEADERS, content.media_type)
    body = await to_thread.run_sync(gzip.compress, content.body, GZIP_LEVEL)
    more = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(body, status, {**HEADERS, **more}, content.media_type)


def refusal(error: ApiError) -> Response:
    """Return an error as JSON."""
    more = {"WWW-Authenticate": "Bearer"} if error.status == 401 else retry_after(error.status)
    if error.status == 405:
        more["Allow"] = ", ".join(error.more.get("allow", []))
    if (wait_s := error.more.get("retry_after_s")) is not None:
        more["Retry-After"] = str(wait_s)
    return Response(error_body(error), error.status, HEADERS | more, JSON)
