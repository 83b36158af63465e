"""Requests of the engine's interface: how they are read, and how errors are answered."""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response

from callboard.bus.errors import CallboardError
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.subjects import is_name
from callboard.features.access.subject import Subject
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.large_starts import START_BYTES_MAX
from callboard.runtime.client.client import UnknownRun
from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.access import check
from callboard.surfaces.http.answers import answer, refusal
from callboard.surfaces.http.live import Live
from callboard.surfaces.http.request_body import RequestSlots, receive_body

logger = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Any]]


def error_text(error: ApiError) -> str:
    """Return the text of an error, with its problems."""
    problems = "; ".join(f"{one.where}: {one.message}" if one.where else one.message for one in error.problems)
    return f"{error.message}: {problems}" if problems else error.message


def answering(scope: str, handler: Handler, places: RequestSlots) -> Callable[[Request], Awaitable[Response | Live]]:
    """Wrap a handler: check the caller's scope and the limit of concurrent requests, and answer its result as JSON.

    Errors are answered as ``{"detail": …}``.
    """

    async def handle(request: Request) -> Response | Live:
        try:
            check(subject_of(request), scope)
        except ApiError as error:
            return refusal(error)
        with content_guard():
            try:
                with places.take():
                    found = await handler(request)
                return found if isinstance(found, Live) else answer(found)
            except ApiError as error:
                return answer({"detail": error_text(error)}, error.status)
            except UnknownRun as error:
                return answer({"detail": error.message}, 404)
            except (CallboardError, NoAnswer) as error:
                return answer({"detail": str(error)}, 503)
            except Exception as error:
                logger.exception("request failed unexpectedly")
                return answer({"error": "Internal server error", "detail": type(error).__name__}, 500)

    return handle


def run_of(request: Request) -> str:
    """Read the id of an execution in the path.

    :raises ApiError: if it is not a valid id
    """
    run: str = request.path_params["id"]
    if not is_name(run):
        raise ApiError(404, "run.unknown", f"unknown execution: {run[:80]!r}")
    return run


def subject_of(request: Request) -> Subject:
    """Return the authenticated caller of a request."""
    return request.state.subject


async def object_of(request: Request) -> dict[str, Any]:
    """Read the body of a request: a JSON object, empty without a body.

    :raises ApiError: if it is not a JSON object, too large or too slow
    """
    try:
        found = decode_json(await receive_body(request, START_BYTES_MAX) or b"{}")
    except JSON_ERRORS as error:
        raise ApiError(400, "api.malformed", f"the body is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(400, "api.malformed", "the body is not a JSON object")
    return found


def number_in(request: Request, name: str, default: int, most: int) -> int:
    """Read a number of the query, at least 0; larger values are reduced to ``most``.

    :raises ApiError: if it is not a number
    """
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise ApiError(400, "api.malformed", f"{name} must be a number of at least 0, not {given[:40]!r}")
    return min(int(given), most)


def truth_in(request: Request, name: str, default: bool) -> bool:
    """Read a boolean of the query.

    :raises ApiError: if it is not a boolean
    """
    given = request.query_params.get(name, "").lower()
    if given not in ("", "true", "1", "false", "0"):
        raise ApiError(400, "api.malformed", f"{name} must be true or false, not {given[:40]!r}")
    return given in ("true", "1") if given else default
