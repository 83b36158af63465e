"""Gemini's failures: the failures of the model port for the exceptions of its SDK."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from callboard.actors.models.error_bodies import said_in
from callboard.actors.models.request_retries import TryFailed
from callboard.actors.models.trouble import TRANSPORT, code_of_status, entry_of, try_failed
from callboard.lib.json_types import JSON

UNREADABLE = "model.bad_reply"

CODE_OF: Mapping[str, str] = {
    "google.APIError": "model.bad_reply",
    "google.UnknownApiResponseError": UNREADABLE,
    "callboard.Unreadable": UNREADABLE,
    **TRANSPORT,
}
"""Codes by exception; that of an ``APIError`` is its status's, if it has one."""

CODE_OF_REASON: Mapping[str, str] = {"API_KEY_INVALID": "model.auth"}
"""Codes by the reason in an error's details, if it is more specific than the status."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


GARBAGE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Exceptions that the SDK raises for an answer of an unexpected shape."""


class Unreadable(Exception):
    """The SDK could not read an answer."""


def failure_of(error: Exception) -> TryFailed | None:
    """Return the failure for an exception that comes from the SDK or through it; None for any other, which is a bug."""
    entry = entry_of(type(error), CODE_OF)
    if entry is None:
        return None
    status = getattr(error, "code", None)
    code = code_of_status(status) if isinstance(status, int) and status >= 400 else CODE_OF[entry]
    after_s: float | None = None
    for detail in _details(getattr(error, "details", None)):
        match detail:
            case {"reason": str(reason)}:
                code = CODE_OF_REASON.get(reason, code)
            case {"retryDelay": str(delay)} if wait := _SECONDS.fullmatch(delay):
                after_s = float(wait[1]) or None
            case _:
                continue
    details = {"status": status, "type": getattr(error, "status", None)}
    message = getattr(error, "message", None) or said_in(getattr(error, "details", None))
    return try_failed(error, code, message=message, details=details, after_s=after_s)


def _details(body: JSON) -> Iterator[JSON]:
    """Yield the details of an error (``google.rpc.ErrorInfo``, ``google.rpc.RetryInfo`` and others)."""
    match body:
        case {"error": {"details": list() as details}}:
            yield from cast("list[JSON]", details)
        case _:
            return
