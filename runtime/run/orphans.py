"""Orphans: forks whose shared events are not in the log. They cannot be read, so lists of runs omit them."""

from callboard.bus.events import RunAccepted
from callboard.bus.log.forks import origin_of
from callboard.bus.log.port import NoAnswer, whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef, is_name

UNREADABLE = (NoAnswer, ValueError)
"""The exceptions that reading an orphan raises: its origin is missing or has an invalid name."""


async def is_orphan(log: JetStreamLog, ref: RunRef) -> bool:
    """Whether a run is a fork that lacks shared events of its origin, or of a further origin.

    A client may publish any first event, even one whose origin has an invalid name or is the fork itself.

    :raises NoAnswer: if the log does not answer
    """
    seen = {ref}
    needed = 0
    while True:
        last = await log.last(ref)
        if last is None or last.event.n < needed:
            return True
        first = await log.last_of_type(ref, RunAccepted.type)
        forked = origin_of(await whole(log, first)) if first is not None else None
        if forked is None:
            return False
        ref, needed = RunRef(ref.tenant, forked.run), forked.n
        if ref in seen or not is_name(forked.run):
            return True
        seen.add(ref)
