"""Chains: runs that continue one another. A kill or a cancellation stops the whole chain.

A run can continue faster than a command that is passed from run to run. So a command that stops a chain leaves a mark
under the chain's first run. Admission of each further run looks for the mark: the run gets the command instead of its
start, and ends before it has performed anything.
"""

from callboard.bus import events as ev
from callboard.bus.commands import TOLD_HEADER, VERB_HEADER
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import whole
from callboard.bus.log.successors import Stop
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.runtime.run.inbox import ENDING


async def mark_stopped(log: JetStreamLog, ref: RunRef, stop: Stop) -> None:
    """Stop the chain to which a run belongs: no run of it that is admitted later performs anything.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    first = await _first_of(log, ref)
    if await find_stop(log, first) != stop:
        headers = {VERB_HEADER: stop.verb, TOLD_HEADER: stop.told}
        await log.publish(OutgoingMessage(log.subjects.stop_subject(first), stop.body, headers))


async def find_stop(log: JetStreamLog, first: RunRef) -> Stop | None:
    """Return the command that stopped the chain of a first run; None if it was not stopped.

    :raises NoAnswer: if the log does not answer
    """
    mark = await log.last_message(log.subjects.stop_subject(first))
    verb = mark.headers.get(VERB_HEADER, "") if mark is not None else ""
    if mark is None or verb not in ENDING:
        return None
    return Stop(verb, mark.data, mark.headers.get(TOLD_HEADER) or f"{mark.sequence} {mark.time_ns}")


async def _first_of(log: JetStreamLog, ref: RunRef) -> RunRef:
    """Return the first run of the chain to which a run belongs."""
    accepted = await log.last_of_type(ref, ev.RunAccepted.type)
    event = await whole(log, accepted) if accepted is not None and not accepted.encrypted else None
    payload = ev.payload_of(event) if event is not None and event.type != UNREADABLE else None
    return RunRef(ref.tenant, first_named(ref.run, payload if isinstance(payload, ev.RunAccepted) else None))


def first_named(run: str, accepted: ev.RunAccepted | None) -> str:
    """Return the id of the first run of the chain to which a run with this first event belongs."""
    continues = accepted.continues if accepted is not None else None
    return continues.first or run if continues is not None else run
