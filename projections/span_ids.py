"""Deterministic OpenTelemetry ids: the same run has the same trace and spans, whoever exports it and however often.

A run is one trace. Hash bits are as good as random ones for samplers that look at the ids.
"""

from hashlib import sha256

_TRACE_ID_BYTES = 16
_SPAN_ID_BYTES = 8

RUN_ADDRESS = ""
"""Address of a run's root span; a node's is ``path#iteration``, an effect's its type and key."""


def trace_id(run: str) -> str:
    """Return the run's trace id: 32 lower-case hex digits, as in a ``traceparent`` header."""
    return _nonzero(f"trace\0{run}", _TRACE_ID_BYTES)


def span_id(run: str, address: str = RUN_ADDRESS) -> str:
    """Return the id of a span of the run: 16 lower-case hex digits."""
    return _nonzero(f"span\0{run}\0{address}", _SPAN_ID_BYTES)


def _nonzero(text: str, size: int) -> str:
    # All zeros mean "no id" in OpenTelemetry; a hash that comes out so is hashed again.
    value = sha256(text.encode()).digest()
    while not any(value[:size]):
        value = sha256(value).digest()
    return value[:size].hex()
