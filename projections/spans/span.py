"""A finished span as plain data, independent of any SDK, and the draft from which it is built."""

import datetime as dt
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from callboard.bus.effects import Failure
from callboard.bus.events import Event
from callboard.lib.canonical_json import canonical
from callboard.projections.spans import semconv

Attribute = str | bool | int | float | tuple[str, ...]
"""A value that every exporter can carry."""

SpanKind = Literal["internal", "client"]
StatusCode = Literal["unset", "error"]

EVENTS_PER_SPAN_MAX = 1024
"""The maximum number of events per span. Later ones are only counted (``callboard.dropped_events``)."""

ATTRIBUTE_CHARS_MAX = 16_384
"""The maximum number of characters of a text attribute. A longer one ends in an ellipsis."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def nanoseconds(time: dt.datetime) -> int:
    """Return a time as nanoseconds since 1970, exactly."""
    return (time - _EPOCH) // _MICROSECOND * 1000


def as_text(value: object) -> str:
    """Return a JSON value as the text an attribute holds."""
    return canonical(value).decode()


class SpanEvent(Struct, frozen=True):
    """Something that happened at one instant of a span."""

    name: str
    time_ns: int
    attributes: Mapping[str, Attribute]


class SpanLink(Struct, frozen=True):
    """A related span of another trace. ``kind`` is child, parent, fork, or caller for the span that started the run.

    ``state`` is the ``tracestate`` of the other trace.
    """

    trace_id: str
    span_id: str
    kind: str
    state: str = ""


class Span(Struct, frozen=True):
    """A finished span. Ids are lower-case hex, times are nanoseconds since 1970. A root has an empty ``parent_id``."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    status: StatusCode = "unset"
    status_message: str = ""


class OpenSpan(Struct):
    """A span that is still open."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    kind: SpanKind = "internal"
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])
    links: list[SpanLink] = field(default_factory=list[SpanLink])
    executed: bool = True
    """True if a worker executes the effect, again after each claim; False if it is answered from outside."""
    executions: int = 1
    status: StatusCode = "unset"
    status_message: str = ""
    dropped: int = 0

    def put(self, attributes: Mapping[str, Attribute | None], *, cut: bool = True) -> None:
        """Add attributes. None and empty texts are left out; long texts are cut if ``cut`` is true."""
        for name, value in attributes.items():
            if value is None or value in ("", ()):
                continue
            self.attributes[name] = _cut(value) if cut else value

    def note(self, event: Event, name: str, attributes: Mapping[str, Attribute | None] | None = None) -> None:
        """Add a span event at the time of an event of the log."""
        if len(self.events) >= EVENTS_PER_SPAN_MAX:
            self.dropped += 1
            return
        kept = {
            key: _cut(value) for key, value in (attributes or {}).items() if value is not None and value not in ("", ())
        }
        self.events.append(SpanEvent(name, nanoseconds(event.time), {**kept, semconv.EVENT_N: event.n}))

    def fail(self, error: Failure | None, code: str = "failed") -> None:
        """Mark the span as failed."""
        self.status = "error"
        self.status_message = _cut_text(error.message if error else "")
        self.put({semconv.ERROR_TYPE: error.code if error else code})

    def finish(self, event: Event) -> Span:
        """Close the span at an event."""
        self.put({semconv.LAST_N: event.n})
        if not semconv.of_a_kind(self.attributes.get(semconv.OPERATION_NAME)):
            self.put({semconv.SPAN_KIND: semconv.SPAN_KIND_CHAIN})
        if self.executions > 1:
            self.put({semconv.EXECUTIONS: self.executions})
        if self.dropped:
            self.put({semconv.DROPPED_EVENTS: self.dropped})
        return Span(
            self.trace_id,
            self.span_id,
            self.parent_id,
            self.name,
            self.kind,
            self.start_ns,
            max(self.start_ns, nanoseconds(event.time)),
            self.attributes,
            tuple(self.events),
            tuple(self.links),
            self.status,
            self.status_message,
        )


def _cut(value: Attribute) -> Attribute:
    return _cut_text(value) if isinstance(value, str) else value


def _cut_text(text: str) -> str:
    return text if len(text) <= ATTRIBUTE_CHARS_MAX else text[: ATTRIBUTE_CHARS_MAX - 1] + "…"
