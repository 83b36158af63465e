"""Purging: taking a run out of the stream for good. What is left is a mark, so that its id is not used again.

The mark is stored first: whatever breaks it off, nobody can begin another run of that id, and done again it goes on.
A fork leaves a note in one step with its first event, and the server lets in either the note or the mark: the mark says
which note is the last that was seen, the note that there is no mark. Each of the two subjects has no wildcard, so that
this holds for writes in flight on a replicated stream as well.

What stands behind the mark stays. A run that comes back from an archive takes the mark away and is stored behind it, so
that nobody who is still at the purge removes anything of it.
"""

from collections.abc import Collection
from contextlib import aclosing

import msgspec
from msgspec import Struct

from callboard.bus.commit import Message, guarded
from callboard.bus.copying import copied
from callboard.bus.decoding import decode_json
from callboard.bus.erasing import erase, erase_all
from callboard.bus.events import AT_REST, RunAccepted
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.json_errors import JSON_ERRORS
from callboard.bus.log import Full
from callboard.bus.run_ids import derived_run_id, named_run_id
from callboard.bus.subjects import RunRef, is_name

MARK_TRIES = 5
"""How often room is made for a mark in a full store. Others that wait for room may take it first."""

FORKS_MAX = 3
"""So many forks of a run are looked for: one is enough to keep it."""


class Gone(Struct, frozen=True, omit_defaults=True):
    """The mark of a run that has been purged: which, by whom, and why."""

    run: str = ""
    by: str | None = None
    reason: str = ""


class _Note(Struct):
    """What a fork leaves at its origin."""

    fork: str = ""


class _Origin(Struct):
    run: str


class _Born(Struct):
    """The member of ``run.accepted`` that is decoded here."""

    forked_from: _Origin | None = None


async def gone(log: JetStreamLog, ref: RunRef) -> Gone | None:
    """Return the mark of a run, if it has been purged.

    :raises NoAnswer: if no answer came
    """
    found = await log.last_message(log.subjects.gone(ref))
    return marked(log, found.subject, found.data) if found is not None else None


def marked(log: JetStreamLog, subject: str, body: bytes) -> Gone | None:
    """Return what a mark says: of which run it is, its subject tells. One that tells nothing else is a mark all the
    same: its run is begun no more, whoever set it. None if it is of no run that there could be.
    """
    try:
        run = log.subjects.parse_gone(subject).run
    except ValueError:
        return None
    try:
        return msgspec.structs.replace(decode_json(body, type=Gone), run=run)
    except JSON_ERRORS:
        return Gone(run)


async def last_fork(log: JetStreamLog, ref: RunRef) -> int:
    """Return the sequence of the last note that a fork shares a run's events, 0 if there is none.

    :raises NoAnswer: if no answer came
    """
    found = await log.last_message(log.subjects.forked(ref))
    return found.sequence if found is not None else 0


async def forks(log: JetStreamLog, ref: RunRef, besides: Collection[str] = ()) -> list[str]:
    """Return forks that share a run's events, some of them, without those ``besides``.

    Each has left a note; what a note says that somebody else has left is believed if there is such a fork.

    :raises NoAnswer: if no answer came
    """
    found: list[str] = []
    async with aclosing(copied(log, log.subjects.forked(ref))) as notes:
        async for note in notes:
            fork = _fork(note.data)
            if is_name(fork) and fork not in (*besides, *found) and await _shares(log, RunRef(ref.tenant, fork), ref):
                found.append(fork)
                if len(found) == FORKS_MAX:
                    break
    return found


async def mark_gone(log: JetStreamLog, ref: RunRef, mark: Gone, forked: int) -> None:
    """Mark a run as purged, if ``forked`` is still the last note of a fork: from here on there will be none.

    :raises Refused: if there is another one
    :raises Full: if there is no room for the mark
    :raises NoAnswer: if no answer came
    """
    await _publish_mark(log, ref, _mark(log, ref, mark, guarded(forked, log.subjects.forked(ref))))


async def mark_again(log: JetStreamLog, ref: RunRef, mark: Gone) -> None:
    """Mark a run anew that is marked: what has been stored of it since goes too.

    :raises Full: if there is no room for the mark
    :raises NoAnswer: if no answer came
    """
    await _publish_mark(log, ref, _mark(log, ref, mark, {}))


async def _publish_mark(log: JetStreamLog, ref: RunRef, message: Message) -> None:
    """Store a mark. If the store is full, make room for it first, with messages that a run at rest does not need.

    A purge that is broken off in between leaves the run as it was, but for those messages.
    """
    for attempt in range(MARK_TRIES):
        try:
            await log.publish(message, frees_room=True)
        except Full:
            if not await _make_room(log, ref) and attempt:
                raise
        else:
            return
    await log.publish(message, frees_room=True)


async def _make_room(log: JetStreamLog, ref: RunRef) -> int:
    """Erase what a run at rest does not need: the message that started it, and the commands that it was given. Return
    how many messages that was."""
    first = await log.last_of_type(ref, RunAccepted.type)
    removed = 0
    if first is not None and await _started_by(log, ref, first.event.cause):
        removed += await erase(log, first.event.cause)
    for filter in log.subjects.pointless(ref):
        removed += await erase_all(log, filter)
    return removed


async def finish(log: JetStreamLog, ref: RunRef) -> int:
    """Remove everything of a run that stands before its mark: events, large values, what it was told, and the message
    that started it. Return how many messages are gone.

    :raises NoAnswer: if JetStream does not answer; done again, it goes on
    """
    mark = await log.last_message(log.subjects.gone(ref))
    if mark is None:
        return 0  # It has come back.
    first = await log.last_of_type(ref, RunAccepted.type)
    started = first is not None and first.sequence < mark.sequence and await _started_by(log, ref, first.event.cause)
    removed = int(await erase(log, first.event.cause)) if first is not None and started else 0
    for filter in log.subjects.belonging(ref):
        removed += await erase_all(log, filter, before=mark.sequence)
    return removed


async def come_back(log: JetStreamLog, ref: RunRef) -> None:
    """Let a run be stored once more that was purged: what is left of it goes, and then the mark.

    :raises NoAnswer: if JetStream does not answer; done again, it goes on
    """
    await finish(log, ref)
    await erase_all(log, log.subjects.gone(ref))


async def purge_again(log: JetStreamLog, ref: RunRef, mark: Gone) -> None:
    """Remove what is there of a run that is marked, if anything is: somebody took its id while it was purged, or the
    purge was broken off. It is marked anew before, so that whoever has heard of it meanwhile hears that it has gone.
    A run that goes on stays, whoever has marked it.

    :raises Full: if there is no room for the mark
    :raises NoAnswer: if no answer came; done again, it goes on
    """
    if await log.last_of_type(ref, RunAccepted.type) is not None and not await goes_on(log, ref):
        await mark_again(log, ref, mark)
        await finish(log, ref)


async def goes_on(log: JetStreamLog, ref: RunRef) -> bool:
    """Return whether somebody performs a run: it has more than its first event, and is not at rest.

    :raises NoAnswer: if no answer came
    """
    last = await log.last(ref)
    return last is not None and last.readable and last.event.n > 1 and last.event.type not in AT_REST


async def _started_by(log: JetStreamLog, ref: RunRef, cause: int) -> bool:
    """Whether a message is the one that started a run. Of a run that was imported the cause is a place in the stream
    where it was recorded, and here somebody else's message may stand there."""
    found = await log.message(cause) if cause else None
    if found is None or found.subject != log.subjects.start(ref.tenant):
        return False
    return ref.run == (named_run_id(found.data) or derived_run_id(log.stream, found.sequence, found.time_ns))


def _fork(note: bytes) -> str:
    """Whose note it is."""
    try:
        return decode_json(note, type=_Note).fork
    except JSON_ERRORS:
        return ""


async def _shares(log: JetStreamLog, fork: RunRef, origin: RunRef) -> bool:
    """Whether a run is there that is, or may be, a fork of another."""
    first = await log.last_of_type(fork, RunAccepted.type)
    if first is None:
        return False
    try:
        forked = decode_json(first.event.payload, type=_Born).forked_from
    except msgspec.ValidationError:
        return True  # It says so beside the event.
    return forked is not None and forked.run == origin.run


def _mark(log: JetStreamLog, ref: RunRef, mark: Gone, guard: dict[str, str]) -> Message:
    return Message(log.subjects.gone(ref), msgspec.json.encode(msgspec.structs.replace(mark, run=ref.run)), guard)
