"""Routing: commands on their way from admission to the workers, and how one is told that is routed again."""

from callboard.bus.commands import WORKER_HEADER
from callboard.bus.commit import MESSAGE_ID, Message
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef, partition_of


def tell_id(sequence: int) -> str:
    """The message id of the command that the tell of a stream sequence is routed as."""
    return f"tell-{sequence}"


async def route(log: JetStreamLog, ref: RunRef, verb: str, body: bytes, message_id: str, worker: str = "") -> int:
    """Pass a command on to the workers; return its stream sequence, the same however often this is done.

    :raises Full: if there is no room
    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    return await log.publish_once(Message(subject, body, {WORKER_HEADER: worker} if worker else {}), message_id)


async def routed(log: JetStreamLog, ref: RunRef, verb: str, sequence: int) -> int | None:
    """Return the stream sequence of the command that a tell was routed as, None if it was not.

    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    found = await log.next_message(subject, sequence + 1)
    while found is not None and found.headers.get(MESSAGE_ID, "").partition("+")[0] != tell_id(sequence):
        found = await log.next_message(subject, found.sequence + 1)
    return found.sequence if found is not None else None
