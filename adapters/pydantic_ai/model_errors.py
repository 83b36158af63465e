"""Failures of models: exceptions of the SDK as JSON, and back, so that an agent can catch them as it does elsewhere."""

from typing import Any

from pydantic_ai import exceptions
from pydantic_ai.exceptions import (
    ConcurrencyLimitExceeded,
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_core import to_jsonable_python

from callboard.languages.python.errors import ModelFailed
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON

MEMBERS = ("body", "provider_error_code", "provider_error_type", "retry_after", "in_stream")
"""What all failures of an API have besides the model's name and the message."""

HTTP_MEMBERS = ("suggested_model_id", "hint")


def note(error: Exception) -> JSON:
    """Return the JSON of an exception, from which `make_error` makes it again; None if it is not one of the SDK's."""
    known = next((one for one in type(error).__mro__ if _is_public(one)), None)
    if known is None:
        return None
    noted: dict[str, Any] = {"type": known.__name__, "message": getattr(error, "message", str(error))}
    if isinstance(error, ModelAPIError):
        noted["model_name"] = error.model_name
        noted |= {name: getattr(error, name) for name in MEMBERS}
    elif isinstance(error, UnexpectedModelBehavior):
        noted["body"] = error.body
    if isinstance(error, ModelHTTPError):
        category = next((one for one in type(error).__mro__ if _is_category(one)), None)
        noted |= {"type": "ModelHTTPError", "category": category.__name__ if category else None}
        noted |= {"status_code": error.status_code, **{name: getattr(error, name) for name in HTTP_MEMBERS}}
    found = {name: value for name, value in noted.items() if value not in (None, False)}
    return plain_json(to_jsonable_python(found, fallback=str))


def make_error(failed: ModelFailed) -> Exception:
    """Return the SDK's exception for a turn that has failed; it keeps the code of the failure. The failure itself, if
    the SDK has raised none."""
    details: Any = failed.failure.details
    noted: Any = details.get("native") if isinstance(details, dict) else None
    if not isinstance(noted, dict):
        return failed
    error = _make(noted)
    if error is None:
        return failed
    error.__cause__ = failed
    setattr(error, "code", failed.code)  # noqa: B010 - the class does not declare it; a failed run has it
    return error


def _make(noted: dict[str, Any]) -> Exception | None:
    kind: Any = getattr(exceptions, noted["type"], None)
    message, body = noted["message"], noted.get("body")
    members = {name: noted[name] for name in MEMBERS if name in noted}
    if kind is ModelHTTPError:
        category: Any = getattr(exceptions, noted.get("category") or "", None)
        members |= {name: noted[name] for name in HTTP_MEMBERS if name in noted}
        return ModelHTTPError.for_category(
            category, status_code=noted["status_code"], model_name=noted["model_name"], **members
        )
    if kind is None:
        return None
    if issubclass(kind, ModelAPIError):
        return kind(noted["model_name"], message, **members)
    if issubclass(kind, UnexpectedModelBehavior):
        return kind(message, body)
    return kind(message)


def _is_public(kind: type) -> bool:
    """Whether a class is an exception of the SDK that can be made from its message."""
    return kind.__module__ == exceptions.__name__ and issubclass(
        kind, ModelAPIError | UnexpectedModelBehavior | UserError | ConcurrencyLimitExceeded
    )


def _is_category(kind: type) -> bool:
    return (
        _is_public(kind) and issubclass(kind, ModelAPIError) and not issubclass(kind, ModelHTTPError)
    ) and kind is not ModelAPIError
