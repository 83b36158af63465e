"""Decisions: read the verdict on a start or a command from the log, for a sender that missed the answer.

A verdict is published once, on a plain subject, and is not stored. The stream holds the decision before that: a run's
first event names its start, a routed command names the published one, and a refusal names either, all by stream
sequence.
"""

from callboard.bus import events as ev
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import whole
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import ack_floor
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.command_routing import (
    ADMISSION,
    chain_id,
    find_command,
    find_command_of_id,
    id_in,
)
from callboard.runtime.admission.refusals import read_refusal
from callboard.runtime.admission.verdicts import Verdict


async def verdict_of_start(log: JetStreamLog, ref: RunRef, sequence: int) -> Verdict | None:
    """Return the verdict on a start of this run, None if it is not decided yet.

    :raises NoAnswer: if the log does not answer
    """
    first = await log.last_of_type(ref, ev.RunAccepted.type)
    if first is not None and first.event.cause == sequence:
        event = await whole(log, first)
        accepted = ev.payload_of(event) if event.type != UNREADABLE else None
        return Verdict("accepted", ref.run, warnings=accepted.warnings if isinstance(accepted, ev.RunAccepted) else [])
    # Read before the refusals, so that a refusal recorded in between is found.
    answered = first is not None and await _is_answered(log, sequence)
    refused = await _refusal(log, ref, sequence)
    return Verdict("accepted", ref.run, duplicate=True) if refused is None and answered else refused


async def verdict_of_tell(log: JetStreamLog, ref: RunRef, verb: str, sequence: int) -> Verdict | None:
    """Return the verdict on a command, None if it is not decided yet.

    :raises NoAnswer: if the log does not answer
    """
    cause = await find_command(log, ref, verb, sequence)
    if cause:
        return Verdict("accepted", ref.run, cause=cause)
    refused = await _refusal(log, ref, sequence)
    published = await log.message(sequence) if refused is None else None
    id = (id_in(published.data) or chain_id(sequence)) if published is not None else ""
    first = await find_command_of_id(log, ref, verb, id)
    if first is None or (first.note.tell >= sequence and first.run == ref.run):
        return refused
    return Verdict("accepted", first.run, duplicate=first.note.tell != sequence, cause=first.cause)


async def _is_answered(log: JetStreamLog, sequence: int) -> bool:
    """Whether a start of an existing run has been answered: its message is acknowledged, or erased, which comes first.

    If the consumer was reset in between, acknowledging an erased message does not move the consumer's floor.
    """
    if await ack_floor(log.requests, log.stream, ADMISSION) >= sequence:
        return True
    return await log.message(sequence) is None


async def _refusal(log: JetStreamLog, ref: RunRef, sequence: int) -> Verdict | None:
    # A refusal is stored under the run's id, or under the message's sequence if the id could not be read.
    for run, named in ((ref.run, ref.run), (None, str(sequence))):
        subject = log.subjects.reject(ref.tenant, named)
        found = await log.next_message(subject, sequence + 1)
        while found is not None:
            rejected = read_refusal(found.data)
            if rejected is not None and rejected.cause == sequence:
                return Verdict("rejected", run, problems=rejected.problems)
            found = await log.next_message(subject, found.sequence + 1)
    return None
