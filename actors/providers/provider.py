"""The port of providers: what a worker is asked, and what it answers.

A call provider takes the arguments of a call, which fit its contract's parameters, and the call's input; it answers
with a Result, a success or a failure envelope, and what it reports of itself (specification: MWL, page *Call
providers*). A middleware acts at phases (page *Middleware mechanics*).
"""

import datetime as dt
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from callboard.bus.effects import JSON

Phase = Literal["onEntry", "onSuccess", "onFailure", "onAlways"]


class Request(Struct, frozen=True):
    """One dispatch. ``asked_at`` is the instant of its intent in the log: the same when it is carried out again."""

    uri: str
    arguments: dict[str, Any]
    input: JSON
    idempotency_key: str
    run: str
    path: str
    asked_at: dt.datetime
    tenant: str = ""


class ActionRequest(Request, frozen=True):
    """One action of a middleware at a phase.

    ``input`` is what its entry received, ``result`` the Result in flight (None at ``onEntry``), ``metadata`` what the
    middleware has contributed so far in this participation.
    """

    result: dict[str, Any] | None = None
    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


class Answer(Struct, frozen=True):
    """What a provider came to: a Result, and the members of its window's metadata."""

    result: dict[str, Any]
    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


class Passed(Struct, frozen=True):
    """A middleware's action lets pass what is in flight; ``metadata`` is what it contributes."""

    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


class ActionFailed(Exception):
    """An action of a middleware failed, and with it its phase.

    A control action that returns a failure substitutes it; to fail itself it raises this.
    """

    def __init__(self, code: str, message: str, *, details: JSON = None, retryable: bool | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.answer = failure(code, message, details=details, retryable=retryable)


class Provider(Protocol):
    """Carries dispatches out. Whatever it raises becomes an internal failure; what authors can act on is a Result."""

    async def execute(self, request: Request) -> Answer: ...


class Middleware(Protocol):
    """Acts at the phases that its contract declares.

    What an Answer means is the kind of the phase's action: a side-effect's success is of no account; a transform's
    success has the new value in flight, at ``onFailure`` the new failure envelope; a control's Result takes the place
    of the one in flight. `Passed`, or None, lets everything pass.
    """

    async def act(self, phase: Phase, request: ActionRequest) -> Answer | Passed | None: ...


def success(value: JSON, **metadata: JSON) -> Answer:
    return Answer({"type": "success", "value": value}, metadata)


def failure(
    code: str,
    message: str,
    *,
    type: str = "error",
    details: JSON = None,
    retryable: bool | None = None,
    **metadata: JSON,
) -> Answer:
    """Make the answer of a provider that failed; what says nothing is left out of the envelope."""
    envelope: dict[str, Any] = {"type": type, "code": code, "message": message}
    if details is not None:
        envelope["details"] = details
    if retryable is not None:
        envelope["retryable"] = retryable
    return Answer(envelope, metadata)
