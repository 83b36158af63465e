"""The ``definition`` provider: runs another definition as a child run."""

from typing import Any

from callboard.languages.flow.dispatches import Dispatch, Reply
from callboard.languages.flow.result import UNSET, Result, as_envelope, success
from callboard.languages.language import End

_NAMES = ("name", "hash", "file", "source", "language")
_START = ("arguments", "options", "model")


async def run_definition(request: Dispatch) -> Reply:
    """Run another definition and wait for its end."""
    given = request.arguments
    definition = {name: given[name] for name in _NAMES if name in given}
    start: dict[str, Any] = {name: given[name] for name in _START if name in given}
    end = await request.node.child("child", definition, request.input, **start)
    metadata = {"status": end.status, "results": end.results}
    return Reply(success(end.output) if end.status == "completed" else _failure_of_child(request, end), metadata)


def _failure_of_child(request: Dispatch, end: End) -> Result:
    """Return the failure for a child run that did not complete; the child's own failure is ``previous``."""
    error = end.error
    given = request.arguments
    named = given.get("name") or given.get("file") or given.get("hash") or "the definition"
    reason = f": {error.message or error.code}" if error is not None else ""
    previous = UNSET if error is None else as_envelope(error)
    retryable = None if error is None else error.retryable
    match end.status:
        case "cancelled":
            code, type, message = "Cancelled", "cancellation", f"the run of {named} was cancelled"
        case "expired":
            code, type, message = "Expired", "timeout", f"the run of {named} expired"
        case _ if error is not None and error.code in REJECTED:
            code, type, message = "Rejected", "error", f"{named} was refused{reason}"
        case _:
            code, type, message = "Failed", "error", f"the run of {named} failed{reason}"
    details = {"status": end.status}
    if code == "Rejected" and error is not None and isinstance(error.details, dict):
        details |= error.details
    return request.make_failure(code, message, type=type, details=details, retryable=retryable, previous=previous)


REJECTED = frozenset({"child.refused"})
"""Failure codes of child runs whose start was refused."""
