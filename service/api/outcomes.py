"""The outcome of a verb, for every transport: its answer, or the error to answer with."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from callboard.bus.errors import CallboardError, StoreFull
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.runtime.admission.verdicts import cut_texts, limit_problems
from callboard.service.api.client import NoVerdict, UnknownRun
from callboard.service.api.verbs import ApiError

logger = structlog.get_logger(__name__)

Verb = Callable[[str, bytes], Awaitable[Any]]
"""Takes a tenant and a request in JSON."""


async def outcome(verb: Verb, tenant: str, body: bytes) -> Any:
    """Carry out a request. Return its answer, or the error to answer with."""
    with content_guard():
        try:
            return await verb(tenant, body)
        except ApiError as error:
            return error
        except UnknownRun as error:
            return ApiError(404, error.code, error.message)
        except NoVerdict as error:
            return ApiError(503, error.code, error.message, remedy=error.remedy)
        except StoreFull as error:
            return _no_room(error)
        except Full as full:
            return _no_room(full.store_full_error())
        except CallboardError as error:
            return ApiError(500, error.code, error.message, remedy=error.remedy)
        except NoAnswer as error:
            return ApiError(503, "log.unavailable", f"the log does not answer: {error}", remedy="Try again.")
        except Exception as error:
            logger.exception("request failed unexpectedly")
            return ApiError(500, "internal", type(error).__name__)


def _no_room(error: StoreFull) -> ApiError:
    return ApiError(507, error.code, error.message, remedy=error.remedy)


def error_body(error: ApiError) -> bytes:
    """Return the JSON object that describes an error."""
    described: dict[str, Any] = {"code": error.code, "message": error.message, **error.more}
    if error.problems:
        # Only as many as fit into one message: a refusal that is too large to send would not reach the client.
        described["problems"] = cut_texts(limit_problems(error.problems))
    return msgspec.json.encode({"error": described})
