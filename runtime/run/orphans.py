"""Orphans: forks of which what they share is not in the log. Nobody reads them; among many runs they are left out."""

from callboard.bus.events import RunAccepted
from callboard.bus.log.forks import origin_of
from callboard.bus.log.port import NoAnswer, whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef, is_name

UNREADABLE = (NoAnswer, ValueError)
"""What reading an orphan raises: its origin is not there, or has a name that is none."""


async def is_orphan(log: JetStreamLog, ref: RunRef) -> bool:
    """Whether a run is a fork whose origin, or that one's, is not there as far as it is shared.

    Whoever may publish may leave any first event: with an origin that nothing can be called by, or the fork itself.

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
