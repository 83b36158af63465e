"""The port of providers: the requests that a worker passes to them, and their answers.

A call provider takes the arguments of a call, which fit its contract's parameters, and the call's input; it answers
with a Result, a success or a failure envelope, and metadata about its work (specification: MWL, page *Call
providers*). A middleware acts at phases (page *Middleware mechanics*).
"""

import datetime as dt
import re
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from callboard.lib.json_types import JSON

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
    """A provider's answer: a Result, and the members of its window's metadata."""

    result: dict[str, Any]
    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


class Passed(Struct, frozen=True):
    """A middleware's action leaves the value or Result in flight unchanged; ``metadata`` is what it contributes."""

    metadata: dict[str, JSON] = field(default_factory=dict[str, JSON])


class ActionFailed(Exception):
    """An action of a middleware failed, and with it its phase.

    If a control action returns a failure, that replaces the Result in flight; to fail itself, it raises this.
    """

    def __init__(self, code: str, message: str, *, details: JSON = None, retryable: bool | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.answer = failure(code, message, details=details, retryable=retryable)


class Provider(Protocol):
    """Carries out dispatches.

    A failure that authors can act on is returned as a Result; an exception becomes an internal failure.
    """

    async def execute(self, request: Request) -> Answer: ...


class Middleware(Protocol):
    """Acts at the phases that its contract declares.

    The kind of the phase's action decides what an Answer means: the success of a side effect is ignored; the success of
    a transform is the new value in flight, at ``onFailure`` the new failure envelope; the Result of a control replaces
    the one in flight. `Passed` or None leaves everything unchanged.
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
    """Return the answer of a provider that failed; members without a value are left out of the envelope."""
    envelope: dict[str, Any] = {"type": type, "code": code, "message": message}
    if details is not None:
        envelope["details"] = details
    if retryable is not None:
        envelope["retryable"] = retryable
    return Answer(envelope, metadata)


_PART = re.compile(r"(T)?([0-9]+(?:[.,][0-9]+)?)([YMWDHS])")
_DATE_S = {"Y": 365 * 86_400.0, "M": 30 * 86_400.0, "W": 7 * 86_400.0, "D": 86_400.0}
_TIME_S = {"H": 3_600.0, "M": 60.0, "S": 1.0}


def seconds_of(duration: str) -> float:
    """Return the length of a duration in seconds, a year counted as 365 days and a month as 30."""
    date, _, time = duration.partition("T")
    total = 0.0
    for part, sizes in ((date, _DATE_S), (time, _TIME_S)):
        total += sum(float(number.replace(",", ".")) * sizes[unit] for _, number, unit in _PART.findall(part))
    return -total if duration.startswith("-") else total


def duration_text(seconds: float) -> str:
    """Return a number of seconds as a duration."""
    return f"PT{seconds:.3f}".rstrip("0").rstrip(".") + "S"
