"""Deterministic OpenTelemetry ids: the same run has the same trace and spans, whoever exports it and however often.

A run is one trace. Its ids are hashes of the store, the tenant and the run's id: run ids are people's choice, and two
tenants, or two stores that send to one backend, may choose the same. The store is named by a mark that was recorded
with the run, so that a log has its ids wherever it is read. Hash bits are as good as random ones for samplers that look
at the ids.
"""

from hashlib import sha256

from msgspec import Struct

from callboard.bus.events import RunAccepted

_TRACE_ID_BYTES = 16
_SPAN_ID_BYTES = 8

RUN_ADDRESS = ""
"""Address of a run's root span; a node's is ``path#iteration``, an effect's its type and key."""


class SpanIds(Struct, frozen=True):
    """The ids of all runs of one tenant in one store; of runs recorded without either, if both are empty."""

    store: str = ""
    tenant: str = ""

    def trace(self, run: str) -> str:
        """Return a run's trace id: 32 lower-case hex digits, as in a ``traceparent`` header."""
        return _nonzero("trace", self._named(run), _TRACE_ID_BYTES)

    def span(self, run: str, address: str = RUN_ADDRESS) -> str:
        """Return the id of a span of a run: 16 lower-case hex digits."""
        return _nonzero("span", f"{self._named(run)}\0{address}", _SPAN_ID_BYTES)

    def _named(self, run: str) -> str:
        return f"{self.store}\0{self.tenant}\0{run}" if self.store or self.tenant else run


def ids_of(accepted: RunAccepted) -> SpanIds:
    """Return the ids of a run, and of those beside it, as its first event has them."""
    trace = accepted.trace
    return SpanIds(trace.store, trace.tenant) if trace is not None else SpanIds()


def effect_address(intent: str, key: str) -> str:
    """Return the address of the span of an effect, by the type of its intent and its key."""
    return f"{intent} {key}"


def _nonzero(kind: str, text: str, size: int) -> str:
    # All zeros mean "no id" in OpenTelemetry; a hash that comes out so is hashed again.
    value = sha256(f"{kind}\0{text}".encode()).digest()
    while not any(value[:size]):
        value = sha256(value).digest()
    return value[:size].hex()
