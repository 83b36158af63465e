"""The OTLP exporter: sends finished spans to an OpenTelemetry backend over HTTP.

Endpoint, headers, timeout, compression and certificates come from the usual ``OTEL_EXPORTER_OTLP_*`` variables, and the
resource from ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES``. The SDK is imported where it is used.

This is the only module that builds the SDK's ``ReadableSpan`` directly instead of through a tracer: the spans have
already ended, and their ids, times and parents must be those of the log. The SDK's limits and sampling do not apply
here. The fold has already cut values that are too long.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from callboard.lib.installed import version
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Span, SpanEvent, SpanLink

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext

BATCH_SPANS_MAX = 512
BATCH_CHARS_MAX = 2 * 1024 * 1024
"""Limits per request: spans, and characters of their attributes. Collectors accept some megabytes."""


class SpanExportFailed(Exception):
    """Raised by `OtlpExporter.export` if the backend did not accept all spans; it accepted ``sent`` of ``total``.

    Retry later with the spans after ``sent``. A span that is sent twice has the same id, so that it is not duplicated.
    """

    def __init__(self, sent: int, total: int) -> None:
        super().__init__(
            f"the OpenTelemetry backend took {sent} of {total} spans and refused the rest or could not be reached; "
            "see OTEL_EXPORTER_OTLP_ENDPOINT and the log of opentelemetry.exporter"
        )
        self.sent = sent
        self.total = total


class OtlpExporter:
    """Sends spans. It blocks, so call it in a thread from an event loop. Arguments override the environment."""

    def __init__(
        self,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        service: str = semconv.SCOPE,
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        self._exporter = OTLPSpanExporter(endpoint=endpoint, headers=headers, timeout=timeout_s)
        self._resource = resource_of(service)
        self._scope = _scope()

    def export(self, spans: Sequence[Span]) -> None:
        """Send spans, in order, in batches.

        :raises SpanExportFailed: if the backend did not accept all spans after the exporter's retries
        """
        from opentelemetry.sdk.trace.export import SpanExportResult

        start = 0
        for batch in batches(spans):
            readable = [readable_span(span, self._resource, self._scope) for span in batch]
            if self._exporter.export(readable) is not SpanExportResult.SUCCESS:
                raise SpanExportFailed(start, len(spans))
            start += len(batch)

    def close(self) -> None:
        """Close the connections."""
        self._exporter.shutdown()


def batches(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Split spans into requests, in order."""
    batch: list[Span] = []
    room = BATCH_CHARS_MAX
    for span in spans:
        size = sum(len(value) for value in span.attributes.values() if isinstance(value, str))
        if batch and (len(batch) == BATCH_SPANS_MAX or size > room):
            yield batch
            batch, room = [], BATCH_CHARS_MAX
        batch.append(span)
        room -= size
    if batch:
        yield batch


def readable_span(span: Span, resource: "Resource", scope: "InstrumentationScope") -> "ReadableSpan":
    """Return a span in the SDK's form."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanKind, Status, StatusCode

    status = Status(StatusCode.ERROR, span.status_message or None) if span.status == "error" else Status()
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=dict(span.attributes),
        events=[_event(event) for event in span.events],
        links=[_link(link) for link in span.links],
        kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )


def _context(trace_id: str, span_id: str, state: str = "") -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    sampled = TraceFlags(TraceFlags.SAMPLED)
    told = TraceState.from_header([state]) if state else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, sampled, told)


def _event(event: SpanEvent) -> "Event":
    from opentelemetry.sdk.trace import Event

    return Event(event.name, dict(event.attributes), event.time_ns)


def _link(link: SpanLink) -> "Link":
    from opentelemetry.trace import Link

    return Link(_context(link.trace_id, link.span_id, link.state), {semconv.LINK_KIND: link.kind})


def resource_of(service: str = semconv.SCOPE) -> "Resource":
    """Return the exporting resource: this service with Callboard's version, unless the environment overrides it."""
    from opentelemetry.sdk.resources import Resource

    said = Resource.create()
    named = not str(said.attributes.get(semconv.SERVICE_NAME, "")).startswith("unknown_service")
    ours = {} if named else {semconv.SERVICE_NAME: service}
    if semconv.SERVICE_VERSION not in said.attributes:
        ours[semconv.SERVICE_VERSION] = version(semconv.SCOPE)
    return said.merge(Resource(ours))


def _scope() -> "InstrumentationScope":
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    return InstrumentationScope(semconv.SCOPE, version(semconv.SCOPE), semconv.SCHEMA_URL)
