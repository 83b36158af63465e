"""Routing: passes commands from admission to the workers, each tell only once.

A tell without an id is recognised by its stream sequence, which is the message id of its command. For a tell with an id
a note is published in one batch with its command, on a subject made of run, verb and id. The server refuses a second
note, no matter how much later it arrives and whether the run still exists.
"""

from hashlib import sha256

import msgspec
from msgspec import Struct

from callboard.bus.commands import TOLD_HEADER, WORKER_HEADER
from callboard.bus.log.port import Refused
from callboard.bus.nats.commit import MESSAGE_ID, Message, guard_headers
from callboard.bus.nats.jetstream import JetStreamLog, Stored
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef, partition_of
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

ADMISSION = "admission"
"""Name of the durable consumer from which all workers admit messages."""


class Note(Struct, frozen=True, omit_defaults=True):
    """The note under the id of a tell: the stream sequence of the first tell with this id, and, unless the run is
    encrypted, a digest of its body."""

    tell: int = 0
    digest: str = ""


class Routed(Struct, frozen=True):
    """The command of a routed tell: its stream sequence, and the note about it if the tell has an id."""

    cause: int
    note: Note = Note()


class _Identified(Struct, frozen=True):
    id: str | None = None


def tell_id(sequence: int) -> str:
    """The message id of the command for the tell with a stream sequence."""
    return f"tell-{sequence}"


def id_in(body: bytes) -> str:
    """The id in the body of a tell; empty if it has none or the body cannot be read."""
    try:
        return decode_json(body or b"{}", type=_Identified).id or ""
    except JSON_ERRORS:
        return ""


def digest_of(body: bytes) -> str:
    """The digest of a tell's body, as its note has it."""
    return sha256(body).hexdigest()[:32]


async def route(log: JetStreamLog, ref: RunRef, verb: str, body: bytes, message_id: str, worker: str = "") -> int:
    """Pass a command on to the workers; return its stream sequence, which is the same if the call is repeated.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    return await log.publish_once(Message(subject, body, {WORKER_HEADER: worker} if worker else {}), message_id)


async def route_tell(
    log: JetStreamLog, ref: RunRef, verb: str, body: bytes, delivery: Delivery, id: str, note: Note
) -> Routed:
    """Pass a tell on to the workers, unless its ``id`` was used before.

    The workers receive ``body``; ``note`` is stored under the id.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    command = Message(subject, body, {TOLD_HEADER: f"{delivery.sequence} {delivery.time_ns}"})
    if not id:
        return Routed(await log.publish_once(command, tell_id(delivery.sequence)), note)
    noted = log.subjects.told_subject(ref, verb, id)
    try:
        last = await log.publish_together([command, Message(noted, msgspec.json.encode(note), guard_headers(0, noted))])
    except Refused:
        if (before := await find_command_of_id(log, ref, verb, id)) is None:
            # The subject holds another message, not a note: the sequence identifies the tell, as if it had no id.
            return Routed(await log.publish_once(command, tell_id(delivery.sequence)), note)
        return before
    return Routed(last - 1, note)


async def find_command_of_id(log: JetStreamLog, ref: RunRef, verb: str, id: str) -> Routed | None:
    """Return the command of the first tell with an id; None for an unused id.

    :raises NoAnswer: if the log does not answer
    """
    noted = await log.last_message(log.subjects.told_subject(ref, verb, id)) if id else None
    command = await log.message(noted.sequence - 1) if noted is not None else None
    if noted is None or command is None:
        return None
    if command.subject != log.subjects.command(partition_of(ref, log.partitions), ref, verb):
        return None
    try:
        return Routed(command.sequence, msgspec.json.decode(noted.data, type=Note))
    except JSON_ERRORS:
        return None


async def find_command(log: JetStreamLog, ref: RunRef, verb: str, sequence: int) -> int | None:
    """Return the stream sequence of the command of a tell, None if the tell has not been routed.

    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    found = await log.next_message(subject, sequence + 1)
    while found is not None and not _is_of(found, sequence):
        found = await log.next_message(subject, found.sequence + 1)
    return found.sequence if found is not None else None


def _is_of(command: Stored, tell: int) -> bool:
    """Whether a command belongs to the tell with a stream sequence."""
    told = command.headers.get(TOLD_HEADER, "").partition(" ")[0]
    return told == str(tell) or command.headers.get(MESSAGE_ID, "").partition("+")[0] == tell_id(tell)
