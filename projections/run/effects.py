"""Events as views show them: the open effects, what each event is about, kind and name of an intent's effect, and the
result of an outcome.

Outcomes match intents by type and key.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import (
    OUTCOME_OF,
    CancelRequested,
    ChildEnd,
    ChildStart,
    CommandRefused,
    EffectCall,
    EffectCancelled,
    EffectResult,
    Event,
    HumanAnswered,
    HumanAsked,
    HumanClosed,
    ModelCall,
    ModelResult,
    NodeEnter,
    NodeProgress,
    NodeRetry,
    NodeWarning,
    Payload,
    Route,
    RunAccepted,
    RunAdopted,
    RunClaimed,
    RunDiverged,
    RunFailed,
    RunParked,
    RunPaused,
    RunQuarantined,
    RunReleased,
    SignalAwaited,
    SignalReceived,
    TimerSet,
    ToolCall,
    ToolResult,
)
from callboard.bus.model_names import model_name, stands_in

_INTENT_OF: dict[type[Payload], str] = {outcome: intent.type for intent, outcome in OUTCOME_OF.items()}


class Opened(Struct, frozen=True):
    """An intent with the event that announced it."""

    event: Event
    payload: Payload


def address_closed(event: Event, payload: Payload) -> tuple[str, str] | None:
    """Return type and key of the intent that an outcome closes; None if the payload is not an outcome.

    A ``timer.fired`` without ``timer.set`` and a signal without key have an address too, but no intent is open there.
    """
    if isinstance(payload, EffectCancelled):
        return payload.of, event.key
    intent = _INTENT_OF.get(type(payload))
    return (intent, event.key) if intent else None


class OpenIntents:
    """A table of the open intents, in the order in which they were announced."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Opened] = {}

    def apply(self, event: Event, payload: Payload) -> Opened | None:
        """Apply an event. Return the intent that it closes, if it closes one."""
        if payload.kind == "intent":
            self._open[payload.type, event.key] = Opened(event, payload)
            return None
        address = address_closed(event, payload)
        return self._open.pop(address, None) if address else None

    def clear(self) -> None:
        """Remove all intents, because none is open after the end of a run."""
        self._open.clear()

    def __iter__(self) -> Iterator[Opened]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)


PROVIDER = "provider"
"""The kind of an effect that a flow's provider executes. Its value is a Result, which may be a failure."""


def provider_model(call: ModelCall) -> str:
    """Return the model's name at its provider, as OpenTelemetry expects it. A stand-in keeps its own name."""
    name = model_name(call)
    return name.partition(":")[0] if stands_in(name) else name.removeprefix(f"{provider_of(call)}:")


def provider_of(call: ModelCall) -> str:
    """Return the provider of a model call; empty if its model's name does not say it."""
    provider, colon, _ = model_name(call).partition(":")
    return call.provider or (provider if colon else "")


def kind_and_name(payload: Payload) -> tuple[str, str]:
    """Return the kind and the name of the effect that an intent announces."""
    match payload:
        case ModelCall():
            return "model", model_name(payload)
        case ToolCall():
            return "tool", payload.tool
        case EffectCall(request={"provider": str(uri)}):
            return payload.kind_, short_uri(uri)
        case EffectCall(kind_="step", request={"step": str(name)}):
            return "step", name
        case EffectCall():
            return payload.kind_, payload.node or payload.kind_
        case TimerSet():
            return "timer", payload.purpose
        case HumanAsked():
            return "human", payload.question
        case SignalAwaited():
            return "signal", payload.name
        case ChildStart():
            return "child", _name_definition(payload)
        case RunPaused():
            return "pause", payload.reason
        case _:
            return payload.type, ""


_NAMED_BY: Mapping[type[Payload], str] = {
    RunClaimed: "worker",
    RunReleased: "worker",
    RunAdopted: "worker",
    RunDiverged: "code",
    RunQuarantined: "code",
    RunParked: "status",
    CommandRefused: "verb",
    NodeRetry: "reason",
    NodeProgress: "message",
    NodeWarning: "code",
    Route: "target",
    ChildStart: "child",
    ToolResult: "tool",
    ModelResult: "response_model",
    SignalReceived: "name",
    HumanAnswered: "by",
}
"""The member that says what an event is about, of events that have such a member."""


def subject_of(event: Event, payload: Payload) -> str:
    """Return what an event is about, in a word or two; empty if there is nothing to name."""
    match payload:
        case RunAccepted(definition=ref):
            return event.definition or ref.name or ""
        case RunFailed(error=error):
            return error.code
        case CancelRequested(kill=True):
            return "kill"
        case NodeEnter(node=node, name=name):
            return name or node
        case _ if type(payload) in _NAMED_BY:
            return getattr(payload, _NAMED_BY[type(payload)]) or ""
        case _:
            return kind_and_name(payload)[1] if payload.kind == "intent" else ""


def outcome_of(payload: Payload) -> tuple[str, Failure | None]:
    """Return how an outcome ended its effect (ok, failed, cancelled, timeout), and the failure if there is one."""
    match payload:
        case EffectCancelled():
            return "cancelled", payload.cause
        case ChildEnd():
            return {"completed": "ok", "cancelled": "cancelled"}.get(payload.status, "failed"), payload.error
        case HumanClosed():
            return ("ok" if payload.outcome == "answered" else payload.outcome), None
        case _:
            error: Failure | None = getattr(payload, "error", None)
            return ("failed" if error else "ok"), error


def outcome_with_answer(payload: Payload) -> tuple[str, Failure | None]:
    """Return how an outcome ended its effect, as `outcome_of`; a provider that answered with a failure has failed."""
    outcome, error = outcome_of(payload)
    if error is None and isinstance(payload, EffectResult) and (failed := failed_result(payload.value)) is not None:
        return "failed", failed
    return outcome, error


def external_outcome(payload: Payload) -> str:
    """Say how a call of a system outside ended: as `outcome_of`, and also ``failed`` if what it answered says so: a
    failure as a Result, ``success: false`` of a service, or a status of HTTP from 500."""
    outcome, _ = outcome_of(payload)
    value: Any = getattr(payload, "value", None)
    if outcome != "ok" or not isinstance(value, dict):
        return outcome
    result: Any = value.get("result")
    answer: Any = result.get("value") if isinstance(result, dict) else None
    status: Any = answer.get("status") if isinstance(answer, dict) else None
    broken = isinstance(status, int) and status >= 500
    return "failed" if broken or value.get("success") is False or failed_result(value) is not None else outcome


def failed_result(value: Any) -> Failure | None:
    """Return the failure that a provider answered with. The effect itself succeeded, because the provider answered."""
    return failure_of(value.get("result")) if isinstance(value, dict) else None


def failure_of(result: Any) -> Failure | None:
    """Read a flow's Result as the record of a failure; None if it is not a failure.

    Providers create Results too, with members of any type. Members that do not fit the record are left out.
    """
    match result:
        case {"type": str(kind), "code": str(code)} if kind != "success":
            message, retryable = result.get("message"), result.get("retryable")
            return Failure(
                code=code,
                message=message if isinstance(message, str) else "",
                type=kind,
                details=result.get("details"),
                retryable=retryable if isinstance(retryable, bool) else None,
                previous=failure_of(result.get("previous")),
            )
        case _:
            return None


def short_uri(uri: str) -> str:
    """Return the name in a provider's URI without namespace and version: ``mwl:provider.call/mwl/mock/v1``."""
    names = uri.split("/")[2:] or [uri]
    return "/".join(names[:-1] if len(names) > 1 else names)


def _name_definition(start: ChildStart) -> str:
    """Name the definition of a child as the start named it: name, file, start of its hash, or language of its text."""
    given = start.definition
    named = given.get("name") or given.get("file") or str(given.get("hash") or "")[:12]
    return str(named or given.get("language") or "")
