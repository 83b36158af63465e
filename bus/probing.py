"""Probing: whether this server stages atomic batches in files or in memory, by what one costs that is refused.

A batch is staged before its guards are looked at, and one whose guard does not hold leaves nothing behind. So the time
of a refused batch, beside that of a refused message, tells the two apart without storing anything.
"""

from contextlib import suppress
from time import perf_counter

from callboard.bus.commit import EXPECTED, Message, publish, publish_batch
from callboard.bus.log import Refused
from callboard.bus.requests import Requests
from callboard.bus.subjects import Subjects

PROBES = 5
"""How often each is tried; the fastest counts."""

CHEAP_RATIO = 12.0
"""Staged in memory a refused batch takes three to six times as long as a refused message, in files thirty and more."""

NEVER = 1 << 52
"""A sequence that no stream comes to."""


async def batches_are_cheap(requests: Requests, subjects: Subjects) -> bool:
    """Whether an atomic batch costs little more than a message.

    :raises NoAnswer: if no answer came
    """
    single = min([await _refused(requests, subjects, 1) for _ in range(PROBES)])
    batch = min([await _refused(requests, subjects, 2) for _ in range(PROBES)])
    return is_cheap(single, batch)


def is_cheap(single_s: float, batch_s: float) -> bool:
    """Whether a refused batch of so many seconds was staged in memory, where a refused message takes ``single_s``."""
    return batch_s < CHEAP_RATIO * single_s


async def _refused(requests: Requests, subjects: Subjects, count: int) -> float:
    """Publish messages whose guard does not hold; return how long their refusal took, in seconds."""
    subject = subjects.reject("probe", "probe")
    messages = [Message(subject, b"", {EXPECTED: str(NEVER)}) for _ in range(count)]
    began = perf_counter()
    with suppress(Refused):
        await (publish(requests, messages[0]) if count == 1 else publish_batch(requests, messages))
    return perf_counter() - began
