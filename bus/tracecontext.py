"""Trace context: the span of somebody's trace that what is done now belongs to, on its way in and out.

In headers of HTTP and NATS, and in ``_meta`` of MCP, it is called ``traceparent``, with an optional ``tracestate`` (W3C
Trace Context). Whoever takes a request in says so for as long as it is dealt with (`within`), whoever sends one takes
along what `headers` returns.
"""

import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

TRACESTATE_CHARS_MAX = 512
"""A longer state of other vendors is left out, which the specification allows."""

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class TraceContext(NamedTuple):
    """A span of a trace, in the form in which it is sent; ``told`` says that those whom we ask may know of it."""

    traceparent: str
    tracestate: str = ""
    told: bool = True

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        return self.traceparent[36:52]


_now: ContextVar[TraceContext | None] = ContextVar("trace_context", default=None)


def propagates(env: Mapping[str, str]) -> bool:
    """Whether an environment leaves it switched on that others are told of our spans (``OTEL_PROPAGATORS``)."""
    return "tracecontext" in (env.get("OTEL_PROPAGATORS") or "tracecontext").replace(" ", "").split(",")


def sent_as(trace_id: str, span_id: str, *, told: bool = True) -> TraceContext:
    """Make the context of a span by its ids; all our spans are recorded, which the last part says."""
    return TraceContext(f"00-{trace_id}-{span_id}-01", told=told)


def read(given: Mapping[str, object]) -> TraceContext | None:
    """Find the context in headers or ``_meta``; None if there is none that is well-formed."""
    named = {str(name).lower(): value for name, value in given.items()}
    parent, state = named.get(TRACEPARENT), named.get(TRACESTATE)
    if not isinstance(parent, str) or not _FORM.fullmatch(parent):
        return None
    kept = isinstance(state, str) and len(state) <= TRACESTATE_CHARS_MAX and state.isascii() and state.isprintable()
    return TraceContext(parent, str(state) if kept else "")


@contextmanager
def within(context: TraceContext | None) -> Generator[None]:
    """Have what is done in the block belong to a span; None: to none."""
    token = _now.set(context)
    try:
        yield
    finally:
        _now.reset(token)


def current() -> TraceContext | None:
    """Return the context that holds here."""
    return _now.get()


def headers() -> dict[str, str]:
    """Return what a request takes along: the context that holds here, or the span that the program around us is in."""
    context = _now.get() or _of_the_program()
    if context is None or not context.told:
        return {}
    state = {TRACESTATE: context.tracestate} if context.tracestate else {}
    return {TRACEPARENT: context.traceparent, **state}


def _of_the_program() -> TraceContext | None:
    """The current span of OpenTelemetry's own API, where a program that has us in it traces itself."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return TraceContext(
        f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}", span.trace_state.to_header()
    )
