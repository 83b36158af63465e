"""Purging: removing a run from the stream permanently. A mark remains, so that the run's id is not used again.

The mark is stored first. If the purge is interrupted, no other run can be started with this id, and repeating the purge
completes it.

A fork stores a note at its origin in one batch with its first event. The server accepts either the note or the mark:
the guard of the mark is the last note that the purge has read, and the guard of the note requires that no mark exists.
The guards' subjects have no wildcards, so they also hold for writes in flight on a replicated stream.

A purge removes only messages before the mark. A run that is imported from an archive removes the mark, and is stored
after it. So a purge that is still running does not remove anything of the imported run.
"""

from collections.abc import Collection
from contextlib import aclosing, suppress

import msgspec
from msgspec import Struct

from callboard.bus.events import AT_REST, RunAccepted
from callboard.bus.log.port import AppendRefused, Full, NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded
from callboard.bus.log.successors import SUCCESSOR_KEY, find_newest, successor_of
from callboard.bus.nats.commit import OutgoingMessage, guard_headers
from callboard.bus.nats.feed import MARK, RESTORED
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.run_ids import child_id, derived_run_id, named_run_id
from callboard.bus.subjects import RunRef, is_name
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

MARK_TRIES = 5
"""How often to free space for a mark in a full store. Other writers may use the freed space first."""

FORKS_MAX = 3
"""Maximum number of a run's forks to look for. One fork is enough to keep the run."""


class PurgeMark(Struct, frozen=True, omit_defaults=True):
    """The mark of a purged run: its id, the client that purged it, and the reason."""

    run: str = ""
    by: str | None = None
    reason: str = ""


class _Note(Struct, omit_defaults=True):
    """The note that a fork stores at its origin, or a dataset at a run that it refers to."""

    fork: str = ""
    dataset: str = ""


class _Origin(Struct):
    run: str


class _Born(Struct):
    """The only member of ``run.accepted`` that this module decodes."""

    forked_from: _Origin | None = None


async def purge_mark(log: JetStreamLog, ref: RunRef) -> PurgeMark | None:
    """Return the mark of a run, if it has been purged.

    :raises NoAnswer: if no answer came
    """
    found = await log.last_message(log.subjects.gone_subject(ref))
    return decode_mark(log, found.subject, found.data) if found is not None else None


async def find_newest_run(log: JetStreamLog, ref: RunRef) -> tuple[RunRef, Recorded | None]:
    """Return what `find_newest` returns; of the runs that continue a run, some may have been purged.

    :raises NoAnswer: if no answer came
    """

    async def was_purged(ref: RunRef) -> bool:
        return await purge_mark(log, ref) is not None

    return await find_newest(log, ref, was_purged)


async def find_next_run(log: JetStreamLog, ref: RunRef) -> RunRef | None:
    """Return the run in the log that continues a run; None without one. Runs that have been purged are passed over.

    :raises NoAnswer: if no answer came
    """
    while True:
        last = await log.last(ref)
        if last is not None:
            following = successor_of(last.event)
        else:
            purged = await purge_mark(log, ref) is not None
            following = child_id(ref.run, SUCCESSOR_KEY) if purged else None
        if following is None:
            return None
        ref = RunRef(ref.tenant, following)
        if await log.last(ref) is not None:
            return ref


def decode_mark(log: JetStreamLog, subject: str, body: bytes) -> PurgeMark | None:
    """Decode a mark. The run's id comes from the subject, so a mark with an invalid body is still valid.

    Return None if the subject does not contain a valid run id.
    """
    try:
        run = log.subjects.parse_gone(subject).run
    except ValueError:
        return None
    try:
        return msgspec.structs.replace(decode_json(body, type=PurgeMark), run=run)
    except JSON_ERRORS:
        return PurgeMark(run)


async def last_fork(log: JetStreamLog, ref: RunRef) -> int:
    """Return the sequence of the last note that a fork of this run stored, or 0.

    :raises NoAnswer: if no answer came
    """
    found = await log.last_message(log.subjects.forked_subject(ref))
    return found.sequence if found is not None else 0


async def forks(log: JetStreamLog, ref: RunRef, besides: Collection[str] = ()) -> list[str]:
    """Return up to `FORKS_MAX` forks that share a run's events, without those in ``besides``.

    Each fork has stored a note. Clients may also store notes, so a note counts only if the fork that it names exists.

    :raises NoAnswer: if no answer came
    """
    found: list[str] = []
    async with aclosing(log.copy_messages(log.subjects.forked_subject(ref))) as notes:
        async for note in notes:
            fork = _note(note.data).fork
            if is_name(fork) and fork not in (*besides, *found) and await _shares(log, RunRef(ref.tenant, fork), ref):
                found.append(fork)
                if len(found) == FORKS_MAX:
                    break
    return found


async def holders(log: JetStreamLog, ref: RunRef) -> dict[str, int]:
    """Return the datasets that refer to a run, each with the sequence of its note.

    :raises NoAnswer: if no answer came
    """
    found: dict[str, int] = {}
    async with aclosing(log.copy_messages(log.subjects.forked_subject(ref))) as notes:
        async for note in notes:
            if dataset := _note(note.data).dataset:
                found[dataset] = note.sequence
    return found


async def hold_run(log: JetStreamLog, ref: RunRef, dataset: str) -> bool:
    """Store the note that a dataset refers to a run, which then is not purged. Return False if there is no such run.

    :raises Full: if the store has no room for the note
    :raises NoAnswer: if no answer came
    """
    if not is_name(ref.run) or await log.last(ref) is None:
        return False
    if dataset in await holders(log, ref):
        return True
    unmarked = guard_headers(0, log.subjects.gone_subject(ref))
    note = OutgoingMessage(log.subjects.forked_subject(ref), msgspec.json.encode(_Note(dataset=dataset)), unmarked)
    try:
        await log.publish(note)
    except AppendRefused:
        return False
    return True


async def release_run(log: JetStreamLog, ref: RunRef, dataset: str) -> None:
    """Erase the note that a dataset refers to a run.

    :raises NoAnswer: if no answer came
    """
    if (sequence := (await holders(log, ref)).get(dataset)) is not None:
        await erase(log, sequence)


async def mark_gone(log: JetStreamLog, ref: RunRef, mark: PurgeMark, forked: int) -> None:
    """Mark a run as purged, if ``forked`` is still the last note of a fork. After that it cannot be forked.

    :raises AppendRefused: if there is a newer note
    :raises Full: if the store has no room for the mark
    :raises NoAnswer: if no answer came
    """
    await _publish_mark(log, ref, _mark(log, ref, mark, guard_headers(forked, log.subjects.forked_subject(ref))))


async def mark_again(log: JetStreamLog, ref: RunRef, mark: PurgeMark) -> None:
    """Mark a purged run again, so that messages stored since the first mark are removed too.

    :raises Full: if the store has no room for the mark
    :raises NoAnswer: if no answer came
    """
    await _publish_mark(log, ref, _mark(log, ref, mark, {}))


async def _publish_mark(log: JetStreamLog, ref: RunRef, message: OutgoingMessage) -> None:
    """Store a mark. If the store is full, free space first by erasing messages that an ended run does not need.

    If the purge is interrupted after that, the run is complete except for these messages.
    """
    for attempt in range(MARK_TRIES):
        try:
            await log.publish(message, frees_room=True)
        except Full:
            if not await make_room(log, ref) and attempt:
                raise
        else:
            return
    await log.publish(message, frees_room=True)


async def make_room(log: JetStreamLog, ref: RunRef) -> int:
    """Erase messages that an ended run does not need: its start message, and its commands. Return their number.

    :raises NoAnswer: if no answer came
    """
    removed = int(await erase_start(log, ref))
    for filter in log.subjects.pointless(ref):
        removed += await erase_all(log, filter)
    return removed


async def erase_start(log: JetStreamLog, ref: RunRef, before: int | None = None) -> bool:
    """Erase the start message of a run whose first event is in the stream, and ``before`` a sequence if one is given.

    Return whether there was one. A run in cold storage has none.
    """
    first = await log.next_message(log.subjects.events(ref.tenant, ref.run, event_type=RunAccepted.type), 1)
    if first is None or (before is not None and first.sequence >= before):
        return False
    mark = first.headers.get(MARK, "")
    cause = decode_recorded(first.subject, first.sequence, ref, mark, first.data).event.cause
    return await started_by(log, ref, cause) and await erase(log, cause)


async def finish(log: JetStreamLog, ref: RunRef) -> int:
    """Remove all messages of a run before its mark: events, large values, commands, and the start message.

    Return the number of removed messages.

    :raises NoAnswer: if JetStream does not answer; calling this again completes the removal
    """
    removed = 0
    while (mark := await log.last_message(log.subjects.gone_subject(ref))) is not None:
        removed += int(await erase_start(log, ref, mark.sequence))
        for filter in log.subjects.belonging(ref):
            removed += await erase_all(log, filter, before=mark.sequence)
        last = await log.last_stored(ref)
        if last is None or last.sequence < mark.sequence or not last.id.endswith(RESTORED):
            break
        # Another process moves the run back from cold storage, and has stored these events after the mark. The guard
        # does not hold if the run was imported again: then it has no mark.
        again = OutgoingMessage(mark.subject, mark.data, guard_headers(mark.sequence, mark.subject))
        with suppress(AppendRefused):
            await log.publish(again, frees_room=True)
    return removed


async def come_back(log: JetStreamLog, ref: RunRef) -> None:
    """Allow a purged run to be stored again: remove its remaining messages, and then its mark.

    :raises NoAnswer: if JetStream does not answer; calling this again completes the removal
    """
    await finish(log, ref)
    await erase_all(log, log.subjects.gone_subject(ref))


async def purge_again(log: JetStreamLog, ref: RunRef, mark: PurgeMark) -> None:
    """Remove the remaining messages of a purged run, if there are any.

    There are some if a client used the run's id during the purge, or if the purge was interrupted. The run is marked
    again before, so that followers that have seen new messages of it see that it is purged. An open run that a worker
    has claimed is not removed, even if it is marked.

    :raises Full: if the store has no room for the mark
    :raises NoAnswer: if no answer came; calling this again completes the removal
    """
    if await log.last_of_type(ref, RunAccepted.type) is not None and not await goes_on(log, ref):
        await mark_again(log, ref, mark)
        await finish(log, ref)


async def goes_on(log: JetStreamLog, ref: RunRef) -> bool:
    """Return whether a worker runs this run: it has more than its first event, and has not ended.

    :raises NoAnswer: if no answer came
    """
    last = await log.last(ref)
    return last is not None and last.readable and last.event.n > 1 and last.event.type not in AT_REST


async def started_by(log: JetStreamLog, ref: RunRef, cause: int) -> bool:
    """Return whether the message with sequence ``cause`` started a run.

    The cause of an imported run is a sequence of the stream where the run was recorded. In this stream, that sequence
    may be another client's message."""
    found = await log.message(cause) if cause else None
    if found is None or found.subject != log.subjects.start(ref.tenant):
        return False
    return ref.run == (named_run_id(found.data) or derived_run_id(log.stream, found.sequence, found.time_ns))


def _note(data: bytes) -> _Note:
    """Return a note; an empty one if it is invalid."""
    try:
        return decode_json(data, type=_Note)
    except JSON_ERRORS:
        return _Note()


async def _shares(log: JetStreamLog, fork: RunRef, origin: RunRef) -> bool:
    """Return whether a run exists that is, or may be, a fork of another."""
    first = await log.last_of_type(fork, RunAccepted.type)
    if first is None:
        return False
    try:
        forked = decode_json(first.event.payload, type=_Born).forked_from
    except msgspec.ValidationError:
        return True  # Its origin is stored separately, as a large value.
    return forked is not None and forked.run == origin.run


def _mark(log: JetStreamLog, ref: RunRef, mark: PurgeMark, guard: dict[str, str]) -> OutgoingMessage:
    return OutgoingMessage(
        log.subjects.gone_subject(ref), msgspec.json.encode(msgspec.structs.replace(mark, run=ref.run)), guard
    )


_NO_MESSAGE = (10037, 10043, 10057)
"""Error codes of the server for a message that does not exist or was deleted before."""


async def erase(log: JetStreamLog, sequence: int) -> bool:
    """Erase a message; return whether it existed.

    :raises NoAnswer: if no answer came
    """
    answer = await api(log.requests, f"STREAM.MSG.DELETE.{log.stream}", {"seq": sequence})
    if "error" in answer and answer["error"].get("err_code") not in _NO_MESSAGE:
        raise NoAnswer(str(answer["error"]))
    return "error" not in answer


async def erase_all(log: JetStreamLog, filter: str, before: int | None = None) -> int:
    """Erase all messages that match a filter, only those ``before`` a sequence if one is given; return their number.

    :raises NoAnswer: if no answer came
    """
    bound = {} if before is None else {"seq": before}
    answer = await api(log.requests, f"STREAM.PURGE.{log.stream}", {"filter": filter, **bound})
    if "error" in answer:
        raise NoAnswer(str(answer["error"]))
    return answer["purged"]
