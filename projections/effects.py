"""Effects as views tell them: the kind and the name of what an intent announces, and how an outcome ended it."""

from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.events import (
    ChildEnd,
    ChildStart,
    EffectCall,
    EffectCancelled,
    HumanAsked,
    HumanClosed,
    ModelCall,
    Payload,
    RunPaused,
    SignalAwaited,
    TimerSet,
    ToolCall,
)
from callboard.bus.stand_ins import model_name, stands_in

PROVIDER = "provider"
"""The kind of an effect that a flow's provider carries out: its value is a Result, which may be a failure."""


def provider_model(call: ModelCall) -> str:
    """Return that model's name at its provider, as OpenTelemetry has it; what stands in for one has its own."""
    name = model_name(call)
    return name.partition(":")[0] if stands_in(name) else name.removeprefix(f"{call.provider}:")


def kind_and_name(payload: Payload) -> tuple[str, str]:
    """Say what kind of effect an intent announces, and which one."""
    match payload:
        case ModelCall():
            return "model", model_name(payload)
        case ToolCall():
            return "tool", payload.tool
        case EffectCall(request={"provider": str(uri)}):
            return payload.kind_, short_uri(uri)
        case EffectCall():
            return payload.kind_, payload.node or payload.kind_
        case TimerSet():
            return "timer", payload.purpose
        case HumanAsked():
            return "human", payload.question
        case SignalAwaited():
            return "signal", payload.name
        case ChildStart():
            return "child", _definition_told(payload)
        case RunPaused():
            return "pause", payload.reason
        case _:
            return payload.type, ""


def outcome_of(payload: Payload) -> tuple[str, Failure | None]:
    """Say how an outcome ended its effect (ok, failed, cancelled, timeout) and the failure that says why."""
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
    """Return the failure that a provider answered with; that it was reached at all is what its effect tells."""
    return failure_of(value.get("result")) if isinstance(value, dict) else None


def failure_of(result: Any) -> Failure | None:
    """Read a flow's Result as the record of a failure; None if it is none.

    Providers make them too, with members of any kind: what does not fit the record is left out.
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
    """The name in a provider's URI, without its namespace and its version: ``mwl:provider.call/mwl/mock/v1``."""
    names = uri.split("/")[2:] or [uri]
    return "/".join(names[:-1] if len(names) > 1 else names)


def _definition_told(start: ChildStart) -> str:
    """A definition as it was asked for: its name or file, the beginning of its hash, or the language of its text."""
    given = start.definition
    named = given.get("name") or given.get("file") or str(given.get("hash") or "")[:12]
    return str(named or given.get("language") or "")
