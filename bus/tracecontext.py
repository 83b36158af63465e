"""Trace context: the span of a trace that the current work belongs to, received from callers and sent with requests.

Headers of HTTP and NATS, and ``_meta`` of MCP, contain it as ``traceparent``, with an optional ``tracestate`` (W3C
Trace Context). A server handles a request inside `within`. A client adds the `headers` to its requests.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from callboard.lib.background_imports import find_imported

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

TRACESTATE_CHARS_MAX = 512
"""A longer state is dropped, as the specification allows."""

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class TraceContext(NamedTuple):
    """A span of a trace, in the form in which it is sent. ``told`` says whether to send it with our requests."""

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
    """Return whether an environment allows sending our spans with requests (``OTEL_PROPAGATORS``)."""
    return "tracecontext" in (env.get("OTEL_PROPAGATORS") or "tracecontext").replace(" ", "").split(",")


def sent_as(trace_id: str, span_id: str, *, told: bool = True) -> TraceContext:
    """Return the context of a span with these ids. Its flags say that it is recorded, like all our spans."""
    return TraceContext(f"00-{trace_id}-{span_id}-01", told=told)


def read(given: Mapping[str, object]) -> TraceContext | None:
    """Return the context in headers or ``_meta``; None if it is missing or malformed."""
    named = {str(name).lower(): value for name, value in given.items()}
    parent, state = named.get(TRACEPARENT), named.get(TRACESTATE)
    if not isinstance(parent, str) or not _FORM.fullmatch(parent):
        return None
    kept = isinstance(state, str) and len(state) <= TRACESTATE_CHARS_MAX and state.isascii() and state.isprintable()
    return TraceContext(parent, str(state) if kept else "")


@contextmanager
def within(context: TraceContext | None) -> Generator[None]:
    """Set the span that the work in the block belongs to; None: no span."""
    token = _now.set(context)
    try:
        yield
    finally:
        _now.reset(token)


def current() -> TraceContext | None:
    """Return the current context."""
    return _now.get()


def headers() -> dict[str, str]:
    """Return the headers for a request: the current context, or else the current span of the host program."""
    context = _now.get() or _of_the_program()
    if context is None or not context.told:
        return {}
    state = {TRACESTATE: context.tracestate} if context.tracestate else {}
    return {TRACEPARENT: context.traceparent, **state}


def _of_the_program() -> TraceContext | None:
    """Return the current span of the OpenTelemetry API, if the program that embeds Callboard uses it."""
    api = find_imported("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return TraceContext(
        f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}", span.trace_state.to_header()
    )
