"""Routing: passes each published command once from admission to the workers.

The message that the workers receive is the routed command. If the published command has no id, the message id of the
routed one contains its stream sequence. If it has an id, a note is published in one batch with the routed command, on a
subject made of run, verb and id. The server refuses a second note, no matter how much later it arrives and whether the
run still exists. If the command names a run that another one continues, a note is published under the named run too, so
that a repeated command is recognised there. A note is also published when an ended run leaves a command to its
successor.
"""

from hashlib import sha256

import msgspec
from msgspec import Struct

from callboard.bus.commands import TOLD_HEADER, WORKER_HEADER
from callboard.bus.log.port import AppendRefused
from callboard.bus.nats.commit import MESSAGE_ID, OutgoingMessage, guard_headers
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery
from callboard.bus.nats.stored_messages import StoredMessage
from callboard.bus.subjects import RunRef, partition_of
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

TOLD_APART_NS = 60 * 1_000_000_000
"""For older messages the stream is searched for an earlier routing. The server recognises repeated message ids for
longer than this (two minutes, unless the stream is configured otherwise)."""

ADMISSION = "admission"
"""Name of the durable consumer from which all workers admit messages."""


class TellNote(Struct, frozen=True, omit_defaults=True):
    """The note under the id of a command: the stream sequence of the first command with this id, and, unless the run is
    encrypted, a digest of its body. ``run`` is the run that received it, if the note is under another run."""

    tell: int = 0
    digest: str = ""
    run: str = ""


class Routed(Struct, frozen=True):
    """A routed command: its run, its stream sequence, and the note about it if the command has an id."""

    run: str
    cause: int
    note: TellNote = TellNote()


class _Identified(Struct, frozen=True):
    id: str | None = None


def tell_id(sequence: int) -> str:
    """The message id of the routed command; ``sequence`` is that of the published one."""
    return f"tell-{sequence}"


def chain_id(sequence: int) -> str:
    """The id in the note of a command without an id that was routed to a successor of the run that it names, or that an
    ended run left to its successor."""
    return f"\0tell-{sequence}"


def id_in(body: bytes) -> str:
    """The id in the body of a command; empty if it has none or the body cannot be read."""
    try:
        return decode_json(body or b"{}", type=_Identified).id or ""
    except JSON_ERRORS:
        return ""


def digest_of(body: bytes) -> str:
    """The digest of a command's body in its note."""
    return sha256(body).hexdigest()[:32]


async def route(log: JetStreamLog, ref: RunRef, verb: str, body: bytes, message_id: str, worker: str = "") -> int:
    """Pass a command on to the workers; return its stream sequence, which is the same if the call is repeated.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    return await log.publish_once(OutgoingMessage(subject, body, {WORKER_HEADER: worker} if worker else {}), message_id)


async def pass_on(log: JetStreamLog, ended: RunRef, to: RunRef, verb: str, body: bytes, header: str) -> None:
    """Pass a command that an ended run has not recorded on to the run that continues it, unless that was done before.

    ``header`` is the `TOLD_HEADER` of the command. A note under the ended run says to which run the command went: that
    one may have recorded it and be continued by yet another run when this is repeated.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    sequence = int(header.split(" ")[0])
    id = chain_id(sequence)
    if await find_command_of_id(log, ended, verb, id) is not None:
        return
    note = _note_message(log.subjects.told_subject(ended, verb, id), TellNote(sequence, run=to.run))
    subject = log.subjects.command(partition_of(to, log.partitions), to, verb)
    command = OutgoingMessage(subject, body, {TOLD_HEADER: header})
    try:
        await log.publish_together([note, command])
    except AppendRefused:
        if await find_command_of_id(log, ended, verb, id) is None:
            # The subject holds another message, not a note.
            await log.publish_once(command, tell_id(sequence))


async def pass_on_stop(log: JetStreamLog, to: RunRef, verb: str, body: bytes, header: str) -> int:
    """Pass a command that stops a chain of runs on to its newest run; return its stream sequence.

    ``header`` is the `TOLD_HEADER` of the command. However often this is repeated, the run gets the command once.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    sequence, time_ns = (int(part) for part in header.split(" "))
    if log.now().timestamp() * 1e9 - time_ns > TOLD_APART_NS:
        before = await find_command(log, to, verb, sequence)
        if before is not None:
            return before
    subject = log.subjects.command(partition_of(to, log.partitions), to, verb)
    return await log.publish_once(OutgoingMessage(subject, body, {TOLD_HEADER: header}), tell_id(sequence))


def header_of(delivery: Delivery) -> str:
    """The `TOLD_HEADER` under which a command is passed on. A run's own message to another run gets its sequence."""
    found = delivery.headers.get(TOLD_HEADER, "").split(" ")
    if len(found) == 2 and all(part.isascii() and part.isdigit() for part in found):
        return " ".join(found)
    return f"{delivery.sequence} {delivery.time_ns}"


async def route_tell(
    log: JetStreamLog, ref: RunRef, verb: str, body: bytes, delivery: Delivery, note: TellNote, named: RunRef
) -> Routed:
    """Pass a command on to the workers of a run, unless its id was used before.

    The workers receive ``body``. ``note`` is stored under the id, and under the run that the command has ``named``.

    :raises Full: if the store is full
    :raises NoAnswer: if the log does not answer
    """
    id = id_in(delivery.data)
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    command = OutgoingMessage(subject, body, {TOLD_HEADER: f"{delivery.sequence} {delivery.time_ns}"})
    if not id and named == ref:
        return Routed(ref.run, await log.publish_once(command, tell_id(delivery.sequence)), note)
    messages = [command]
    if named != ref:
        # The note precedes the command that it is about.
        there = log.subjects.told_subject(named, verb, id or chain_id(delivery.sequence))
        messages.insert(0, _note_message(there, msgspec.structs.replace(note, run=ref.run)))
    if id:
        messages.append(_note_message(log.subjects.told_subject(ref, verb, id), note))
    try:
        last = await log.publish_together(messages)
    except AppendRefused:
        before = await find_routed(log, named, verb, delivery) or await find_command_of_id(log, ref, verb, id)
        if before is None:
            # The subject holds another message, not a note: the sequence identifies the command, as if it had no id.
            return Routed(ref.run, await log.publish_once(command, tell_id(delivery.sequence)), note)
        return before
    return Routed(ref.run, last - bool(id), note)


def _note_message(subject: str, note: TellNote) -> OutgoingMessage:
    return OutgoingMessage(subject, msgspec.json.encode(note), guard_headers(0, subject))


async def find_routed(log: JetStreamLog, named: RunRef, verb: str, delivery: Delivery) -> Routed | None:
    """Return the first routed command with the id of this one, under the run that it has ``named``, or None. A command
    without an id is found if it was routed to a run that continues that one.

    :raises NoAnswer: if the log does not answer
    """
    return await find_command_of_id(log, named, verb, id_in(delivery.data) or chain_id(delivery.sequence))


async def find_command_of_id(log: JetStreamLog, ref: RunRef, verb: str, id: str) -> Routed | None:
    """Return the first routed command with an id; None for an unused id.

    :raises NoAnswer: if the log does not answer
    """
    noted = await log.last_message(log.subjects.told_subject(ref, verb, id)) if id else None
    if noted is None:
        return None
    try:
        note = msgspec.json.decode(noted.data, type=TellNote)
    except JSON_ERRORS:
        return None
    to = RunRef(ref.tenant, note.run) if note.run else ref
    cause = noted.sequence + (1 if note.run else -1)
    command = await log.message(cause)
    if command is None:
        # The command is erased when its run is moved to cold storage.
        return Routed(to.run, cause, note) if note.tell else None
    try:
        subject = log.subjects.command(partition_of(to, log.partitions), to, verb)
    except ValueError:
        return None
    return Routed(to.run, cause, note) if command.subject == subject else None


async def find_command(log: JetStreamLog, ref: RunRef, verb: str, sequence: int) -> int | None:
    """Return the stream sequence of the routed command, or None; ``sequence`` is that of the published one.

    :raises NoAnswer: if the log does not answer
    """
    subject = log.subjects.command(partition_of(ref, log.partitions), ref, verb)
    found = await log.next_message(subject, sequence + 1)
    while found is not None and not _is_of(found, sequence):
        found = await log.next_message(subject, found.sequence + 1)
    return found.sequence if found is not None else None


def _is_of(command: StoredMessage, published: int) -> bool:
    """Whether a routed command belongs to the one that was published with a stream sequence."""
    sequence = command.headers.get(TOLD_HEADER, "").partition(" ")[0]
    return sequence == str(published) or command.headers.get(MESSAGE_ID, "").partition("+")[0] == tell_id(published)
