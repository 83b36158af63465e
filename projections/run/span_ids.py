"""Deterministic OpenTelemetry ids: every export of a run has the same trace and span ids.

A run is one trace. Its ids are hashes of the store, the tenant and the run's id. The run's id alone is not enough,
because callers choose it, and two tenants, or two stores that export to one backend, may choose the same. The store's
identifier is recorded with the run, so that a log has the same ids wherever it is read. Samplers that use the ids can
treat hash bits as random bits.
"""

from hashlib import sha256

from msgspec import Struct

from callboard.bus.events import RunAccepted

_TRACE_ID_BYTES = 16
_SPAN_ID_BYTES = 8

RUN_ADDRESS = ""
"""The address of a run's root span. A node's address is ``path#iteration``, an effect's is its type and key."""


class SpanIds(Struct, frozen=True):
    """The ids of all runs of one tenant in one store. Both are empty for runs recorded without them."""

    store: str = ""
    tenant: str = ""

    def trace(self, run: str) -> str:
        """Return a run's trace id: 32 lower-case hex digits, as in a ``traceparent`` header."""
        return _nonzero("trace", self._qualify(run), _TRACE_ID_BYTES)

    def span(self, run: str, address: str = RUN_ADDRESS) -> str:
        """Return the id of a span of a run: 16 lower-case hex digits."""
        return _nonzero("span", f"{self._qualify(run)}\0{address}", _SPAN_ID_BYTES)

    def _qualify(self, run: str) -> str:
        return f"{self.store}\0{self.tenant}\0{run}" if self.store or self.tenant else run


def ids_of(accepted: RunAccepted) -> SpanIds:
    """Return the ids for a run, and for its tenant's other runs in the store, from its first event."""
    trace = accepted.trace
    return SpanIds(trace.store, trace.tenant) if trace is not None else SpanIds()


def effect_address(intent: str, key: str) -> str:
    """Return the address of the span of an effect, by the type of its intent and its key."""
    return f"{intent} {key}"


def _nonzero(kind: str, text: str, size: int) -> str:
    # All zeros mean "no id" in OpenTelemetry. Such a hash is hashed again.
    value = sha256(f"{kind}\0{text}".encode()).digest()
    while not any(value[:size]):
        value = sha256(value).digest()
    return value[:size].hex()
