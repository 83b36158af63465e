"""Probing: find out whether the server stages atomic batches in files or in memory, by timing a refused batch.

The server stages a batch before it checks the guards, and stores nothing of a batch whose guard does not hold. So
comparing the time of a refused batch with the time of a refused message shows the difference without storing anything.
"""

from contextlib import suppress
from time import perf_counter

from callboard.bus.log.port import AppendRefused
from callboard.bus.nats.commit import EXPECTED, OutgoingMessage, publish, publish_batch
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import Subjects

PROBES = 5
"""Number of attempts for each; the fastest one counts."""

CHEAP_RATIO = 12.0
"""A refused batch takes three to six times as long as a refused message if it is staged in memory, and at least thirty
times as long if it is staged in files."""

NEVER = 1 << 52
"""A sequence that no stream reaches."""


async def batches_are_cheap(requests: Requests, subjects: Subjects) -> bool:
    """Return whether an atomic batch costs little more than a message.

    :raises NoAnswer: if no answer came
    """
    single = min([await _time_refusal(requests, subjects, 1) for _ in range(PROBES)])
    batch = min([await _time_refusal(requests, subjects, 2) for _ in range(PROBES)])
    return is_cheap(single, batch)


def is_cheap(single_s: float, batch_s: float) -> bool:
    """Return whether a refused batch was staged in memory, given its time and that of a refused message."""
    return batch_s < CHEAP_RATIO * single_s


async def _time_refusal(requests: Requests, subjects: Subjects, count: int) -> float:
    """Publish messages whose guard does not hold; return how many seconds the refusal took."""
    subject = subjects.reject("probe", "probe")
    messages = [OutgoingMessage(subject, b"", {EXPECTED: str(NEVER)}) for _ in range(count)]
    began = perf_counter()
    with suppress(AppendRefused):
        await (publish(requests, messages[0]) if count == 1 else publish_batch(requests, messages))
    return perf_counter() - began
