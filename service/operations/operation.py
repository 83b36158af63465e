"""What an operation of the service is: a typed request, a typed answer, and errors that all surfaces report alike.

A surface finds an `Operation` by its name, and calls it with a tenant and a request. The request is JSON, or the object
that the JSON describes.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
import structlog
from msgspec import Struct

from callboard.bus.errors import CallboardError, StoreFull
from callboard.bus.events import Problem
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.subjects import is_name
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.verdicts import cut_texts, limit_problems
from callboard.runtime.client.client import NoVerdict, UnknownRun

logger = structlog.get_logger(__name__)

R = TypeVar("R")


class ApiError(Exception):
    """An error to report to the client: ``status`` is an HTTP status, ``code`` is stable."""

    def __init__(
        self, status: int, code: str, message: str, problems: list[Problem] | None = None, **more: Any
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.problems = problems or []
        self.more = more


class Signature(Struct, frozen=True):
    """The types of an operation, and its description.

    ``request`` is the type that a request is decoded to. ``documented`` is the type that schemas show for it: for a
    start, whose problems are found by admission, this is more than the request is checked for here.
    """

    request: Any
    documented: Any
    answer: Any
    summary: str

    @classmethod
    def of(cls, method: Callable[..., Awaitable[Any]]) -> "Signature":
        """Read the signature of a method ``(self, tenant: str, request: Request) -> Answer``.

        ``Request`` may be ``Annotated[Request, Documented]``.
        """
        hints = get_type_hints(method, include_extras=True)
        answer = hints.pop("return")
        (request,) = (hint for name, hint in hints.items() if name != "tenant")
        request, *documented = get_args(request) if hasattr(request, "__metadata__") else (request,)
        return cls(request, documented[0] if documented else request, answer, describe(method))

    def schemas(self) -> Mapping[str, str]:
        """Return the JSON Schemas of request and answer as text, by their names in the metadata of an endpoint."""
        return {"request_schema": _schema_text(self.documented), "response_schema": _schema_text(self.answer)}


class Operation(Struct, frozen=True):
    """An operation that can be called."""

    signature: Signature
    perform: Callable[[str, Any], Awaitable[Any]]

    async def __call__(self, tenant: str, request: bytes | Mapping[str, Any]) -> Any:
        """Carry out a request.

        :raises ApiError: if the request does not have the operation's type, is refused, or names an unknown object
        """
        return await self.perform(tenant, read_request(request, self.signature.request))


class OperationProvider:
    """Offers operations: each public coroutine method takes a tenant and a request, and returns the answer."""

    @classmethod
    @cache
    def signatures(cls) -> Mapping[str, Signature]:
        """Return the signatures of the operations, by name."""
        methods = {
            name: one for name, one in vars(cls).items() if not name.startswith("_") and iscoroutinefunction(one)
        }
        return {name: Signature.of(method) for name, method in methods.items()}

    def operations(self) -> Mapping[str, Operation]:
        """Return the operations, by name."""
        return {name: Operation(signature, getattr(self, name)) for name, signature in self.signatures().items()}


def all_operations(*providers: OperationProvider) -> Mapping[str, Operation]:
    """Return the operations of several providers, by name."""
    return {name: operation for provider in providers for name, operation in provider.operations().items()}


def describe(what: Any) -> str:
    """Return the docstring of a method or class as one line."""
    return " ".join((what.__doc__ or "").split())


def read_request(request: bytes | Mapping[str, Any], shape: type[R]) -> R:
    """Return a request as its type; an empty text is an object without members.

    :raises ApiError: if it does not have the type, or names an impossible run
    """
    try:
        if isinstance(request, bytes):
            found = decode_json(request or b"{}", type=shape)
        else:
            found = msgspec.convert(request, shape)
    except JSON_ERRORS as error:
        fields = ", ".join(getattr(shape, "__struct_fields__", ()))
        raise ApiError(400, "api.malformed", str(error), expected=f"a JSON object with {fields}") from error
    run = getattr(found, "run_id", None)
    if run is not None and not is_name(run):
        message = f"there is no run {run[:80]!r}: this is not a valid run id"
        raise ApiError(404, "run.unknown", message)
    return found


async def outcome(work: Awaitable[Any]) -> Any:
    """Return the result of ``work``, or the error to report to the client. Log nothing of the request's content."""
    with content_guard():
        try:
            return await work
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


def _schema_text(shape: Any) -> str:
    (schema,), defs = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    return msgspec.json.encode({**schema, "$defs": defs} if defs else schema).decode()
