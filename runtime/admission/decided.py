"""What the log says of a start or a tell that was published: the verdict, for whoever may have missed it.

A verdict is told once, on a plain subject. What it says is in the stream by then: a run's first event names the start
that it comes from, a routed command the tell, a refusal either. All of them name it by its stream sequence.
"""

from callboard.bus import events as ev
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import ack_floor
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.admission import ADMISSION
from callboard.runtime.admission.command_routing import id_in, routed, routed_as
from callboard.runtime.admission.refusals import read_refusal
from callboard.runtime.admission.verdicts import Verdict


async def verdict_of_start(log: JetStreamLog, ref: RunRef, sequence: int) -> Verdict | None:
    """Return what has been decided about a start of this run, None if nothing has been decided yet.

    :raises NoAnswer: if the log does not answer
    """
    first = await log.last_of_type(ref, ev.RunAccepted.type)
    if first is not None and first.event.cause == sequence:
        event = await whole(log, first)
        accepted = ev.payload_of(event) if event.type != UNREADABLE else None
        return Verdict("accepted", ref.run, warnings=accepted.warnings if isinstance(accepted, ev.RunAccepted) else [])
    # Before refusals are looked for: one that is recorded in between is found.
    answered = first is not None and await _is_answered(log, sequence)
    refused = await _refusal(log, ref, sequence)
    return Verdict("accepted", ref.run, duplicate=True) if refused is None and answered else refused


async def verdict_of_tell(log: JetStreamLog, ref: RunRef, verb: str, sequence: int) -> Verdict | None:
    """Return what has been decided about a tell, None if nothing has been decided yet.

    :raises NoAnswer: if the log does not answer
    """
    cause = await routed(log, ref, verb, sequence)
    if cause:
        return Verdict("accepted", ref.run, cause=cause)
    refused = await _refusal(log, ref, sequence)
    said = await log.message(sequence) if refused is None else None
    first = await routed_as(log, ref, verb, id_in(said.data)) if said is not None else None
    if first is None or first.note.tell >= sequence:
        return refused
    return Verdict("accepted", ref.run, duplicate=True, cause=first.cause)


async def _is_answered(log: JetStreamLog, sequence: int) -> bool:
    """Whether a start of a run that is there already has been answered: it is acknowledged, or gone, since it is erased
    before. Where the consumer was reset in between, acknowledging one that is gone does not move its floor."""
    if await ack_floor(log.requests, log.stream, ADMISSION) >= sequence:
        return True
    return await log.message(sequence) is None


async def _refusal(log: JetStreamLog, ref: RunRef, sequence: int) -> Verdict | None:
    # Told under the run's id, or under the message's sequence where that could not be read.
    for run, told_as in ((ref.run, ref.run), (None, str(sequence))):
        subject = log.subjects.reject(ref.tenant, told_as)
        found = await log.next_message(subject, sequence + 1)
        while found is not None:
            rejected = read_refusal(found.data)
            if rejected is not None and rejected.cause == sequence:
                return Verdict("rejected", run, problems=rejected.problems)
            found = await log.next_message(subject, found.sequence + 1)
    return None
