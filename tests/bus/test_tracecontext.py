"""Trace context: how it is read and sent, and how it passes from a start to its run."""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from callboard.bus import tracecontext
from callboard.bus.events import Parent, Traced
from callboard.bus.tracecontext import TRACESTATE_CHARS_MAX, TraceContext, headers, propagates, read, sent_as, within
from callboard.projections.run.span_ids import SpanIds
from callboard.projections.spans.jaeger import jaeger
from callboard.projections.spans.otlp import readable_span
from tests.projections.spans.test_spans import spans_of
from tests.support.event_logs import Log

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"traceparent": PARENT}, TraceContext(PARENT)),
        ({"Traceparent": PARENT, "TraceState": "a=1"}, TraceContext(PARENT, "a=1")),
        ({"TRACEPARENT": f"01-{TRACE}-{SPAN}-00"}, TraceContext(f"01-{TRACE}-{SPAN}-00")),
        ({"traceparent": PARENT, "tracestate": "a" * (TRACESTATE_CHARS_MAX + 1)}, TraceContext(PARENT)),
        ({"traceparent": PARENT, "tracestate": "a=\r\n"}, TraceContext(PARENT)),
        ({"traceparent": PARENT, "tracestate": 7}, TraceContext(PARENT)),
        ({"tracestate": "a=1"}, None),
        ({"traceparent": 7}, None),
        ({"traceparent": f"{PARENT}-more"}, None),
        ({"traceparent": PARENT.upper()}, None),
        ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, None),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, None),
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, None),
    ],
)
def test_a_well_formed_trace_context_is_read(given: dict[str, Any], found: TraceContext | None) -> None:
    assert read(given) == found


def test_a_request_carries_the_current_span() -> None:
    assert headers() == {}
    with within(TraceContext(PARENT, "a=1")):
        assert headers() == {"traceparent": PARENT, "tracestate": "a=1"}
        with within(sent_as(TRACE, "00000000000000aa")):
            assert headers() == {"traceparent": f"00-{TRACE}-00000000000000aa-01"}
        assert read(headers()) == TraceContext(PARENT, "a=1")
    assert headers() == {}


def test_the_span_of_an_instrumented_program_is_the_parent() -> None:
    around = NonRecordingSpan(SpanContext(int(TRACE, 16), int(SPAN, 16), False, TraceFlags(1)))
    with trace.use_span(around):
        assert headers() == {"traceparent": PARENT}
        with within(sent_as(TRACE, "00000000000000aa")):
            assert headers() == {"traceparent": f"00-{TRACE}-00000000000000aa-01"}


@pytest.mark.parametrize("spec", [None, SimpleNamespace(_initializing=True)])
def test_a_request_is_sent_while_a_thread_is_importing_opentelemetry(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = ModuleType("opentelemetry.trace")
    half.__spec__ = spec
    monkeypatch.setitem(sys.modules, half.__name__, half)
    assert headers() == {}


@pytest.mark.parametrize(
    ("said", "on"),
    [(None, True), ("", True), ("tracecontext, baggage", True), ("baggage,tracecontext", True), ("none", False)],
)
def test_trace_context_can_be_disabled(said: str | None, on: bool) -> None:
    assert propagates({} if said is None else {"OTEL_PROPAGATORS": said}) is on


def test_the_root_of_a_run_is_linked_to_the_span_that_started_it() -> None:
    log = Log()
    log.accepted(trace=Traced("s", "acme", PARENT, "vendor=1"))
    (root,) = spans_of(log.ended())
    assert [(link.kind, link.trace_id, link.span_id) for link in root.links] == [("caller", TRACE, SPAN)]
    assert (root.parent_id, root.trace_id) == ("", SpanIds("s", "acme").trace(log.run))
    sent: Any = readable_span(root, None, None)  # pyright: ignore[reportArgumentType] - of a resource nothing is asked
    (link,) = sent.links
    assert (link.context.trace_id, link.context.trace_state.to_header()) == (int(TRACE, 16), "vendor=1")
    assert f"{TRACE}:{SPAN}" in json.dumps(jaeger([root]))


def test_a_child_is_linked_to_its_parent_once() -> None:
    log, ids = Log("child-0"), SpanIds("s", "acme")
    begun_by = tracecontext.sent_as(ids.trace("r"), ids.span("r", "child.start a#1.1!child"))
    log.accepted(parent=Parent("r", "a#1.1!child", 1), trace=Traced("s", "acme", begun_by.traceparent))
    (root,) = spans_of(log.ended())
    assert [(link.kind, link.trace_id, link.span_id) for link in root.links] == [
        ("parent", begun_by.trace_id, begun_by.span_id)
    ]
