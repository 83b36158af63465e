"""Spans as a file in Jaeger's legacy JSON format, which the Jaeger UI loads in the browser without a server.

Shape: ``{"data": [{traceID, processes, spans}]}``, times in microseconds, ids in lower-case hex. Links to other traces
are in tags and not in references, because the UI treats a span with an unknown reference as an orphan.
"""

from collections.abc import Iterable
from typing import Any

from callboard.projections.spans import semconv
from callboard.projections.spans.span import Attribute, Span, SpanEvent

_NS_PER_US = 1000
_PROCESS = "p1"


def jaeger(spans: Iterable[Span], service: str = semconv.SCOPE) -> dict[str, Any]:
    """Return the file's content for the spans of any number of runs."""
    traces: dict[str, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    return {"data": [_trace(trace_id, members, service) for trace_id, members in traces.items()]}


def _trace(trace_id: str, spans: list[Span], service: str) -> dict[str, Any]:
    return {
        "traceID": trace_id,
        "processes": {_PROCESS: {"serviceName": service, "tags": [_tag("otel.scope.name", semconv.SCOPE)]}},
        "spans": [_span(span) for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))],
    }


def _span(span: Span) -> dict[str, Any]:
    parent = {"refType": "CHILD_OF", "traceID": span.trace_id, "spanID": span.parent_id}
    start = span.start_ns // _NS_PER_US
    return {
        "traceID": span.trace_id,
        "spanID": span.span_id,
        "operationName": span.name,
        "references": [parent] if span.parent_id else [],
        "startTime": start,
        "duration": span.end_ns // _NS_PER_US - start,
        "tags": _tags(span),
        "logs": [_log(event) for event in span.events],
        "processID": _PROCESS,
        "warnings": [],
    }


def _tags(span: Span) -> list[dict[str, Any]]:
    tags = [_tag("span.kind", span.kind), *(_tag(key, value) for key, value in span.attributes.items())]
    if span.status == "error":
        tags += [_tag("error", True), _tag("otel.status_code", "ERROR")]
        if span.status_message:
            tags.append(_tag("otel.status_description", span.status_message))
    tags += [_tag(f"link.{link.kind}", f"{link.trace_id}:{link.span_id}") for link in span.links]
    return tags


def _log(event: SpanEvent) -> dict[str, Any]:
    fields = [_tag("event", event.name), *(_tag(key, value) for key, value in event.attributes.items())]
    return {"timestamp": event.time_ns // _NS_PER_US, "fields": fields}


def _tag(key: str, value: Attribute) -> dict[str, Any]:
    match value:
        case bool():
            return {"key": key, "type": "bool", "value": value}
        case int():
            return {"key": key, "type": "int64", "value": value}
        case float():
            return {"key": key, "type": "float64", "value": value}
        case str():
            return {"key": key, "type": "string", "value": value}
        case _:
            return {"key": key, "type": "string", "value": ", ".join(value)}
