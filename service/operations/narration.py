"""Describes each event of a run in one line for people."""

import datetime as dt
import re
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.events import Event, Payload
from callboard.bus.model_names import model_name, stands_in
from callboard.bus.paths import last_id
from callboard.projections.run.causes import gathered_failures
from callboard.projections.run.effects import PROVIDER, kind_and_name
from callboard.projections.run.warnings import codes
from callboard.projections.trace.text_renderings import duration_text
from callboard.runtime.settings.log_redaction import HIDDEN, names_secret, redaction

TEXT_CHARS_MAX = 100
"""Maximum number of characters of a text or value that one line quotes."""


_ASPECT = re.compile(r":.*$")
"""The part after the id in the last segment of a path, without indices."""

_INDEX = re.compile(r"\[\d+\]")
"""The index of a dispatch in a path; brackets in an id are encoded."""

_CALL = re.compile(r"!tool\.\d+\.(\d+)$")
"""The position of a tool call among those of its turn."""

_STEP = re.compile(r"!step(?:\.\d+)?$")
"""The slot of a call of a step, with the number of its attempt."""

_AWAITED = {
    "waiting:human": "waiting for a person",
    "waiting:tool": "waiting for its caller",
    "waiting:timer": "waiting for a timer",
    "waiting:signal": "waiting for a signal",
    "waiting:child": "waiting for a child run",
    "paused": "paused",
    "cancelling": "waiting, while it is cancelled",
}
"""Descriptions of the statuses of parked runs."""


def narrate(event: Event, payload: Payload) -> str:
    """Describe an event, without its place and time."""
    match payload:
        case ev.NodeEnter():
            again = f" (visit {event.iteration})" if event.iteration > 1 else ""
            name = name_of(event.path)
            told = payload.name or payload.node
            known = not told or told in (last_id(event.path), name)
            return f"▶ {name}{again}" + ("" if known else f": {told}")
        case ev.NodeExit():
            mark = {"ok": "✓", "failed": "✗", "skipped": "–", "cancelled": "⊘"}[payload.outcome]
            why = "" if payload.outcome == "cancelled" else _reason_text(payload.error)
            return f"{mark} {name_of(event.path)} {payload.outcome}{why}"
        case ev.NodeRetry():
            why = payload.error.code if payload.error else short(payload.reason)
            waits = f" in {duration_text(payload.delay)}" if payload.delay else ""
            return f"↻ retry {payload.attempt}{waits}: {why}"
        case ev.Route():
            edge = payload.edge if isinstance(payload.edge, str) and payload.reason == "next" else payload.reason
            return f"→ {payload.target}" + (f"  ({short(edge)})" if edge else "")
        case ev.NodeProgress():
            return short(payload.message)
        case ev.NodeWarning():
            # Not shortened: the end of a warning says what to do.
            return f"! {payload.code}: {' '.join(payload.reason.split())}"
        case ev.RunAccepted(definition=ref):
            told = f"accepted {ref.name or ref.hash[:12]} ({ref.language}) as {event.run}"
            if (forked := payload.forked_from) is not None:
                told += f", forked from {forked.run} after event {forked.n}"
            return told + _list_warnings(list(dict.fromkeys(warning.code for warning in payload.warnings)))
        case ev.EffectResult() if _STEP.search(event.key):
            return f"{last_id(event.path)} {_describe_effect(payload, event.key)}"
        case _:
            return _describe_run(payload) or _describe_effect(payload, event.key)


def name_of(path: str) -> str:
    """Return the name of a node execution: its id, its aspect, and the item of the fan-out that it handles."""
    aspect = _ASPECT.search(_INDEX.sub("", path.rpartition("/")[2]))
    return " ".join(part for part in (last_id(path) + (aspect.group() if aspect else ""), item_of(path)) if part)


def item_of(path: str) -> str:
    """Return the indices of the dispatches in a path, such as ``[3]``; empty outside of fan-outs."""
    return "".join(_INDEX.findall(path))


def describe_call(call: ev.ToolCall | ev.ToolResult, key: str) -> str:
    """Describe a tool call: the tool, the number of the call unless it is the first of its turn, and the input."""
    place = _CALL.search(key)
    number = int(place[1]) + 1 if place else 1
    told = f"{call.tool} (call {number})" if number > 1 else call.tool
    return f"{told} {_arguments(call.input)}" if isinstance(call, ev.ToolCall) else told


def describe_step(call: ev.EffectCall) -> str:
    """Describe a call of a step of a workflow: its name and its arguments."""
    _kind, name = kind_and_name(call)
    request: Any = call.request
    return f"step {name} {_arguments(request.get('arguments', {}))}"


def _arguments(value: Any) -> str:
    """Quote the arguments of a call, without texts whose names say that they are secret."""
    return short(redaction.line(_on_one_line(_hide_secrets(value))))


def _hide_secrets(value: Any) -> Any:
    match value:
        case dict():
            members: dict[str, Any] = value
            return {
                name: HIDDEN if isinstance(one, str) and names_secret(name) else _hide_secrets(one)
                for name, one in members.items()
            }
        case list():
            return [_hide_secrets(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def describe_pause(pause: ev.RunPaused) -> str:
    """Describe why a run is paused: at which breakpoint or step, or by whose command."""
    if pause.reason in ("breakpoint", "step"):
        return (
            f"paused ({pause.reason})"
            + (f" at {pause.step}" if pause.step else "")
            + _reason_suffix(pause.message or "")
        )
    return f"paused ({pause.reason}){_by(pause.by)}{_reason_suffix(pause.message or '')}"


def question_text(asked: ev.HumanAsked) -> str:
    """Return a question with the possible answers."""
    return " ".join(asked.question.split()) + answers_to(asked)


def answers_to(asked: ev.HumanAsked) -> str:
    """Return the possible answers to a question, in brackets."""
    choices = [one.get("value", one) if isinstance(one, dict) else one for one in asked.options]
    answers = "yes or no" if asked.interaction_type == "confirm" else ", ".join(map(short, choices))
    return f"  ({answers})" if answers else ""


def _describe_run(payload: Payload) -> str | None:
    """Describe an event of a run as a whole; None if it is another one."""
    match payload:
        case ev.RunRejected():
            return f"rejected: {len(payload.problems)} problems"
        case ev.RunClaimed():
            return f"claimed{' again' if payload.epoch > 1 else ''} by {payload.worker}"
        case ev.RunParked():
            until = f" until {local(payload.deadline)}" if payload.deadline else ""
            what = f"waiting for {payload.waits_for}" if payload.waits_for else _AWAITED.get(payload.status, "waiting")
            return f"parked{until}, {what}: {', '.join(payload.awaits)}"
        case ev.RunQuarantined():
            return f"✗ quarantined: {payload.code}: {payload.message} (message {payload.sequence}, {payload.subject})"
        case ev.RunReleased():
            return f"released by {payload.worker}, which shuts down"
        case ev.RunDiverged():
            what = "waiting for other code" if payload.entry else "diverged"
            return f"✗ {what}: {payload.code}: {payload.message}"
        case ev.RunAdopted():
            return f"continued by {payload.worker} with the code {payload.digest[:12]}, before {payload.previous[:12]}"
        case ev.RunStart():
            return "started"
        case ev.SourcesResolved():
            return f"{len(payload.sources)} source{'s' if len(payload.sources) != 1 else ''} read"
        case ev.RunPaused():
            return describe_pause(payload)
        case ev.RunResumed():
            return f"resumed{' for a step' if payload.step else ''}" + _by(payload.by)
        case ev.CancelRequested():
            return f"{'kill' if payload.kill else 'cancel'} requested{_by(payload.by)}" + _reason_suffix(payload.reason)
        case ev.CommandRefused():
            return f"! {payload.verb} refused: {payload.message}"
        case ev.RunFailed():
            return f"✗ failed{_reason_text(payload.error)}"
        case ev.RunEnd():
            successor = f", continued as {payload.successor.run}" if payload.successor is not None else ""
            return f"■ {payload.status}{successor}" + _list_warnings(codes(payload.warnings))
        case _:
            return None


def _describe_effect(payload: Payload, key: str) -> str:
    match payload:
        case ev.ModelCall():
            return f"{_describe_model_call(payload)} ({payload.purpose})"
        case ev.ModelResult():
            return _reply(payload)
        case ev.ToolCall():
            return f"calls {describe_call(payload, key)}"
        case ev.ToolResult():
            told = describe_call(payload, key)
            if payload.asks is not None:
                return f"{told} asks a person for input"
            return (
                f"{told} failed{_reason_text(payload.error)}" if payload.error else f"{told} = {short(payload.output)}"
            )
        case ev.EffectCall(kind_="step", request={"step": str()}):
            return f"{describe_step(payload)} …"
        case ev.EffectCall():
            kind, name = kind_and_name(payload)
            return f"{kind} {name} …" if payload.kind_ == PROVIDER else f"{kind} …"
        case ev.EffectResult():
            return f"failed{_reason_text(payload.error)}" if payload.error else f"= {_value(payload.value)}"
        case ev.TimerSet():
            return f"timer until {local(payload.due)} ({payload.purpose})"
        case ev.TimerFired():
            return "timer fired"
        case ev.CodeMarked():
            return f"follows the change {payload.id}"
        case ev.ClockRead():
            return f"clock read: {payload.value.isoformat()}"
        case ev.HumanAsked():
            return f"? {short(payload.question)}{answers_to(payload)}"
        case ev.HumanAnswered():
            return f"answer {payload.k}{_by(payload.by)}: {short(payload.user_response)}"
        case ev.HumanClosed():
            return f"question closed: {payload.outcome}"
        case ev.SignalAwaited():
            return f"waits for signal {payload.name}"
        case ev.SignalReceived():
            return f"signal {payload.name}{_by(payload.by)}: {short(payload.data)}"
        case ev.ChildStart():
            return f"starts run {payload.child}"
        case ev.ChildUsage():
            return f"child run has used {sum(one.usage.tokens for one in payload.models)} tokens"
        case ev.ChildEnd():
            return f"child run {payload.status}{_reason_text(payload.error)}" + _list_warnings(codes(payload.warnings))
        case ev.EffectCancelled():
            return f"⊘ {payload.of} cancelled: {payload.cause.message or payload.cause.code}"
        case _:
            return payload.type


def _describe_model_call(call: ev.ModelCall) -> str:
    """Describe a call to a model, or the script or run that answers instead of the model."""
    name = model_name(call)
    if not stands_in(name):
        return f"asks {name or 'the model'}"
    provider, _, run = name.partition(":")
    who = "the script" if provider == "scripted" else f"run {run}" if run else "an earlier run"
    told = f"{who} answers"
    return told if stands_in(call.model) else f"{told} for {call.model}"


def _reply(reply: ev.ModelResult) -> str:
    if reply.error:
        return f"failed{_reason_text(reply.error)}"
    if reply.tool_calls:
        return f"wants {', '.join(call.tool for call in reply.tool_calls)}"
    return f"= {short(reply.text if reply.data is None else reply.data)}"


def _value(value: Any) -> str:
    """Return the names of the tools of a toolbox, or quote any other value."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and "input_schema" in one for one in value):
        return ", ".join(str(one.get("name")) for one in value)
    return short(value)


def local(instant: dt.datetime | None) -> str:
    """Format an instant in the local time zone."""
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}" if instant else "–"


def short(value: Any) -> str:
    """Quote a value on one line, cut to `TEXT_CHARS_MAX` characters."""
    line = _on_one_line(value)
    return line if len(line) <= TEXT_CHARS_MAX else line[: TEXT_CHARS_MAX - 1] + "…"


def is_cut(value: Any) -> bool:
    """Whether `short` cuts a value."""
    return len(_on_one_line(value)) > TEXT_CHARS_MAX


def _on_one_line(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return " ".join(text.split())


def _reason_text(error: Failure | None) -> str:
    if error is None:
        return ""
    first = "".join(f"; [{index}]{_reason_text(failure)}" for index, failure in gathered_failures(error)[:1])
    return f": {error.code} {short(error.message)}".rstrip() + first


def _list_warnings(found: list[str]) -> str:
    return f"  ! {', '.join(found)}" if found else ""


def _by(who: str | None) -> str:
    return f" by {who}" if who else ""


def _reason_suffix(reason: str) -> str:
    return f": {short(reason)}" if reason else ""
