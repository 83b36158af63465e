"""Results: the ends of calls and frames, as the plain JSON objects that expressions read.

A success is ``{"type": "success", "value": …}``. A failure envelope has ``type`` and ``code``, and ``message``,
``details``, ``retryable`` and ``previous`` if they are known (specification: *The Call interface and Result*). Results
are never modified.
"""

from typing import Any

from callboard.bus.effects import Failure
from callboard.languages.flow.depth import too_deep
from callboard.lib.json_types import JSON

Result = dict[str, Any]

ENVELOPE = ("type", "code", "message", "details", "retryable", "previous")
"""The members of a failure envelope that authors may set."""

CHAIN_DEPTH_MAX = 64
"""How many links of a ``previous`` chain are kept; the specification does not fix the number."""

UNSET: Any = object()
"""Represents an absent member where None is a value."""


class Fault(Exception):
    """Raised where a construct fails; ``result`` is the failure envelope."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result['code']}: {result.get('message', '')}")
        self.result = result


def success(value: JSON) -> Result:
    return {"type": "success", "value": value}


def failure(
    code: str,
    message: str = "",
    *,
    type: str = "error",
    details: JSON = UNSET,
    retryable: bool | None = None,
    previous: JSON = UNSET,
) -> Result:
    """Return a failure envelope without empty members; details that nest deeper than `DEPTH_MAX` are left out."""
    envelope: Result = {"type": type, "code": code}
    if message:
        envelope["message"] = message
    if details is not UNSET:
        envelope["details"] = "left out: nested too deep" if too_deep(details) else details
    if retryable is not None:
        envelope["retryable"] = retryable
    if previous is not UNSET:
        envelope["previous"] = previous
    return bound_chain(envelope)


def is_success(result: Result) -> bool:
    return result["type"] == "success"


def is_envelope(value: JSON) -> bool:
    """Return whether a value is a failure envelope: it has a type other than success, and a code."""
    if not isinstance(value, dict):
        return False
    kind, code = value.get("type"), value.get("code")
    return isinstance(kind, str) and kind != "success" and isinstance(code, str)


def supersede(later: Result, earlier: Result | None) -> Result:
    """Return a later failure with the ``earlier`` one, which it replaces, at the end of its chain.

    If the author has ended the chain with an explicit null, it is not extended. A replaced success is not linked.
    """
    if earlier is None or is_success(earlier):
        return later
    links = [later]
    while isinstance(below := links[-1].get("previous"), dict):
        links.append(below)
    if "previous" in links[-1]:
        return later
    linked = earlier
    for link in reversed(links):
        linked = {**link, "previous": linked}
    return bound_chain(linked)


def bound_chain(envelope: Result) -> Result:
    """Return a failure with its chain cut at `CHAIN_DEPTH_MAX` links; the last link says how many were left out."""
    links = [envelope]
    while isinstance(below := links[-1].get("previous"), dict):
        links.append(below)
    if len(links) <= CHAIN_DEPTH_MAX:
        return envelope
    message = f"{len(links) - CHAIN_DEPTH_MAX + 1} earlier failures were left out here"
    cut: Result = {"type": "error", "code": "System.FailureChainTruncated", "message": message}
    for link in reversed(links[: CHAIN_DEPTH_MAX - 1]):
        cut = {**link, "previous": cut}
    return cut


# -- the failure record of the runtime --------------------------------------------------------------------------------


def as_failure(envelope: Result) -> Failure:
    """Return an envelope as the failure record that events carry.

    Members of the wrong kind, which envelopes of providers may have, are left out.
    """
    return _to_recorded(bound_chain(envelope))


def _to_recorded(envelope: Result) -> Failure:
    message, retryable = envelope.get("message"), envelope.get("retryable")
    below = envelope.get("previous")
    return Failure(
        code=envelope["code"],
        message=message if isinstance(message, str) else "",
        type=envelope["type"],
        details=envelope.get("details"),
        retryable=retryable if isinstance(retryable, bool) else None,
        previous=_to_recorded(below) if isinstance(below, dict) and is_envelope(below) else None,
    )


def as_envelope(record: Failure) -> Result:
    """Return a failure record as an envelope."""
    return failure(
        record.code,
        record.message,
        type=record.type,
        details=UNSET if record.details is None else record.details,
        retryable=record.retryable,
        previous=UNSET if record.previous is None else as_envelope(record.previous),
    )
