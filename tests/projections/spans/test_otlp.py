"""The OTLP exporter against a receiver over HTTP: ids, times, attributes, the environment, and refusals."""

from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from callboard.projections.spans import semconv
from callboard.projections.spans.otlp import BATCH_SPANS_MAX, OtlpExporter, SpanExportFailed
from callboard.projections.spans.span import nanoseconds
from tests.projections.spans.test_spans import IDS, spans_of
from tests.support.event_logs import RUN, Log, at, cake, everything
from tests.support.otlp_receiver import Receiver, otlp_receiver, plain


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    with otlp_receiver() as served:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", served.url)
        yield served


def _export(log: Log) -> None:
    exporter = OtlpExporter()
    try:
        exporter.export(spans_of(log))
    finally:
        exporter.close()


def _named(receiver: Receiver, name: str) -> Span:
    return next(span for span in receiver.spans() if span.name == name)


def test_ids_parents_and_times_arrive(receiver: Receiver) -> None:
    log = cake()
    _export(log)
    assert receiver.paths == ["/v1/traces"]
    arrived, sent = receiver.spans(), spans_of(log)
    assert [(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()) for span in arrived] == [
        (span.trace_id, span.span_id, span.parent_id) for span in sent
    ]
    assert [(span.start_time_unix_nano, span.end_time_unix_nano) for span in arrived] == [
        (span.start_ns, span.end_ns) for span in sent
    ]
    root = arrived[-1]
    assert root.span_id.hex() == IDS.span(RUN)
    assert root.parent_span_id == b""
    assert root.start_time_unix_nano == nanoseconds(at(0)) == 1_795_172_400_000_000_000


def test_attributes_kinds_events_links_and_status_arrive(receiver: Receiver) -> None:
    log = everything()
    _export(log)
    for arrived, sent in zip(receiver.spans(), spans_of(log), strict=True):
        expected = {key: list(value) if isinstance(value, tuple) else value for key, value in sent.attributes.items()}
        assert plain(list(arrived.attributes)) == expected
        assert [event.name for event in arrived.events] == [event.name for event in sent.events]
        assert [event.time_unix_nano for event in arrived.events] == [event.time_ns for event in sent.events]
    chat, tool = _named(receiver, "chat opus"), _named(receiver, "execute_tool search")
    assert chat.kind == Span.SPAN_KIND_CLIENT
    assert tool.kind == Span.SPAN_KIND_INTERNAL
    assert (tool.status.code, tool.status.message) == (Status.STATUS_CODE_ERROR, "rate limited")
    link = _named(receiver, "child sub").links[0]
    assert (link.trace_id.hex(), plain(list(link.attributes))) == (IDS.trace("child-0"), {"link.kind": "child"})


def test_the_scope_names_the_pinned_schema_and_the_service_has_a_default(receiver: Receiver) -> None:
    _export(cake())
    resource = receiver.requests[0].resource_spans[0]
    assert plain(list(resource.resource.attributes))["service.name"] == "callboard"
    scope = resource.scope_spans[0]
    assert (scope.scope.name, scope.schema_url) == ("callboard", semconv.SCHEMA_URL)


def test_the_usual_variables_are_read(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "stage-door")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=rehearsal")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    _export(cake())
    attributes = plain(list(receiver.requests[0].resource_spans[0].resource.attributes))
    assert attributes["service.name"] == "stage-door"
    assert attributes["deployment.environment.name"] == "rehearsal"
    assert receiver.headers[0]["x-tenant"] == "acme"
    assert receiver.headers[0]["content-encoding"] == "gzip"


def test_many_spans_go_in_batches(receiver: Receiver) -> None:
    log = Log().started()
    for iteration in range(1, BATCH_SPANS_MAX + 1):
        log.enter("a", iteration)
        log.exit("a", iteration)
    _export(log.ended())
    assert len(receiver.requests) == 2
    assert len(receiver.spans()) == BATCH_SPANS_MAX + 1
    assert receiver.spans()[-1].name == "invoke_workflow cake"


def test_a_refusal_is_an_error_with_the_number_of_accepted_spans(receiver: Receiver) -> None:
    receiver.answer = 400
    exporter = OtlpExporter()
    spans = spans_of(cake())
    with pytest.raises(SpanExportFailed) as caught:
        exporter.export(spans)
    assert (caught.value.sent, caught.value.total) == (0, len(spans))
    receiver.answer = 200
    exporter.export(spans)
    exporter.close()
    assert len(receiver.spans()) == len(spans)


def test_arguments_take_precedence_over_the_environment(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    exporter = OtlpExporter(f"{receiver.url}/elsewhere", {"x-experiment": "0"}, timeout_s=5)
    exporter.export(spans_of(cake()))
    exporter.close()
    assert receiver.paths == ["/elsewhere"]
    assert receiver.headers[0]["x-experiment"] == "0"
