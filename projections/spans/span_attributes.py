"""Names and attributes of the spans of effects, from the payloads of their intents and outcomes."""

from collections.abc import Mapping

from callboard.bus import events as ev
from callboard.bus.events import Payload
from callboard.lib.json_types import JSON
from callboard.projections.run.effects import provider_model, provider_of
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Attribute, SpanKind
from callboard.projections.spans.span_effects import ToolCatalogue, effect_outcome, effect_span

Attributes = Mapping[str, Attribute | None]

_WAITS = frozenset({ev.TimerSet.type, ev.HumanAsked.type, ev.SignalAwaited.type, ev.RunPaused.type})


def intent_span(payload: Payload, tools: ToolCatalogue) -> tuple[str, SpanKind, dict[str, Attribute | None]] | None:
    """Return name, kind and attributes of the span that an intent opens; None if it opens none.

    Timers, questions, signals and pauses are waits: events on the span that contains them, not spans.
    """
    match payload:
        case ev.ModelCall():
            return f"{semconv.CHAT} {provider_model(payload)}", "client", _chat(payload)
        case ev.ToolCall():
            return f"{semconv.EXECUTE_TOOL} {payload.tool}", "internal", {**_tool(payload), **tools.of(payload)}
        case ev.EffectCall():
            return effect_span(payload)
        case ev.ChildStart():
            given = payload.definition
            name = str(given.get("name") or given.get("file") or given.get("language") or "")
            attributes: dict[str, Attribute | None] = {
                semconv.EFFECT_KIND: "child",
                semconv.CHILD_RUN: payload.child,
            }
            return f"child {name}".rstrip(), "client", attributes
        case _:
            return None


SPENDING = frozenset(
    {
        semconv.USAGE_INPUT_TOKENS,
        semconv.USAGE_OUTPUT_TOKENS,
        semconv.USAGE_CACHE_READ,
        semconv.USAGE_CACHE_WRITE,
        semconv.USAGE_CACHE_CREATION,
        semconv.COST,
    }
)
"""The attributes that backends add up."""


def outcome_attributes(payload: Payload) -> Attributes:
    """Return the attributes that an outcome adds to the span of its intent."""
    match payload:
        case ev.ModelResult():
            return _reply(payload)
        case ev.EffectResult():
            return effect_outcome(payload)
        case ev.ChildEnd():
            return {semconv.RUN_STATUS: payload.status}
        case _:
            return {}


def agent_attributes(call: ev.ModelCall, name: Attribute, title: Attribute | None) -> Attributes:
    """Return the attributes of a node's span from its first model call on, which makes it the span of an agent."""
    return {
        semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
        semconv.AGENT_NAME: name,
        semconv.AGENT_DESCRIPTION: title,
        semconv.PROVIDER_NAME: semconv.provider_name(provider_of(call)),
        semconv.REQUEST_MODEL: provider_model(call),
    }


def _chat(call: ev.ModelCall) -> dict[str, Attribute | None]:
    return {
        semconv.OPERATION_NAME: semconv.CHAT,
        semconv.PROVIDER_NAME: semconv.provider_name(provider_of(call)),
        semconv.REQUEST_MODEL: provider_model(call),
        semconv.REQUEST_MAX_TOKENS: call.max_output_tokens,
        semconv.REQUEST_TEMPERATURE: call.temperature,
        **{attribute: _attribute(call.parameters.get(name)) for name, attribute in semconv.REQUEST_PARAMETERS.items()},
        semconv.OUTPUT_TYPE: semconv.OUTPUT_TYPE_JSON if call.schema else None,
        semconv.MODEL_PURPOSE: call.purpose,
    }


def _attribute(value: JSON) -> Attribute | None:
    """Return a parameter of a turn as an attribute; None if it is not a number, a text or a list of texts."""
    match value:
        case [*items] if items and all(isinstance(item, str) for item in items):
            return tuple(items)
        case int() | float() | str():
            return value
        case _:
            return None


def _reply(result: ev.ModelResult) -> Attributes:
    usage = result.usage
    return {
        semconv.PROVIDER_NAME: semconv.provider_name(result.provider),
        semconv.RESPONSE_ID: result.response_id,
        semconv.RESPONSE_MODEL: result.response_model,
        semconv.RESPONSE_FINISH_REASONS: (result.stop_reason,) if result.stop_reason else None,
        semconv.RESPONSE_TIME_TO_FIRST_CHUNK: None if result.first_chunk_ms is None else result.first_chunk_ms / 1000,
        semconv.USAGE_INPUT_TOKENS: usage.input_tokens,
        semconv.USAGE_OUTPUT_TOKENS: usage.output_tokens,
        semconv.USAGE_CACHE_READ: usage.cache_read_tokens or None,
        semconv.USAGE_CACHE_WRITE: usage.cache_write_tokens or None,
        semconv.USAGE_CACHE_CREATION: usage.cache_write_tokens or None,
        semconv.MODEL_TRIES: result.tries if result.tries > 1 else None,
    }


def _tool(call: ev.ToolCall) -> dict[str, Attribute | None]:
    return {
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: call.tool,
        semconv.TOOL_CALL_ID: call.id,
        semconv.TOOL_TYPE: semconv.TOOL_TYPE_FUNCTION,
        semconv.TOOL_SERVER: call.server,
        semconv.TOOL_VIA: call.via,
    }


def wait_note(payload: Payload, content: bool) -> Attributes | None:
    """Return the attributes of a span event for a wait, a retry, a route or a note; None for other events."""
    match payload:
        case ev.TimerSet():
            return {semconv.DUE: payload.due.isoformat(), semconv.TIMER_PURPOSE: payload.purpose}
        case ev.TimerFired():
            return {semconv.DUE: payload.due.isoformat()}
        case ev.HumanAsked():
            return {semconv.QUESTION_TYPE: payload.interaction_type, semconv.CHANNEL: payload.channel_type}
        case ev.HumanAnswered():
            return {semconv.ANSWER: payload.k, semconv.BY: payload.by, semconv.CHANNEL: payload.channel}
        case ev.HumanClosed():
            return {semconv.OUTCOME: payload.outcome, semconv.ANSWER: payload.k, semconv.LABEL: payload.label}
        case ev.SignalAwaited() | ev.SignalReceived():
            return {semconv.SIGNAL: payload.name}
        case ev.RunPaused():
            return {semconv.REASON: payload.reason, semconv.BY: payload.by}
        case ev.RunResumed():
            return {semconv.BY: payload.by}
        case ev.EffectCancelled() if payload.of in _WAITS:
            return {semconv.CANCELLED_INTENT: payload.of, semconv.CANCEL_CAUSE: payload.cause.code}
        case _:
            return _remark(payload, content)


def _remark(payload: Payload, content: bool) -> Attributes | None:
    match payload:
        case ev.NodeRetry():
            code = payload.error.code if payload.error else None
            reason = payload.reason if content else None
            return {semconv.ATTEMPT: payload.attempt, semconv.REASON: reason, semconv.ERROR_TYPE: code}
        case ev.Route():
            return {
                semconv.ROUTE_FROM: payload.source,
                semconv.ROUTE_TO: payload.target,
                semconv.REASON: payload.reason,
            }
        case ev.NodeProgress():
            return {semconv.MESSAGE: payload.message if content else None}
        case ev.NodeWarning():
            return {semconv.WARNING_CODE: payload.code, semconv.REASON: payload.reason}
        case _:
            return None
