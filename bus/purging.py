"""Purging: taking a run out of the stream for good. What is left is a mark, so that its id is not used again.

The mark is stored first: whatever breaks it off, nobody can begin another run of that id, and done again it goes on.
A fork leaves a note in one step with its first event, and the server lets in either the note or the mark: the mark says
which note is the last that was seen, the note that there is no mark. Each of the two subjects has no wildcard, so that
this holds for writes in flight on a replicated stream as well.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from callboard.bus.commit import Message, guarded
from callboard.bus.erasing import erase, erase_all
from callboard.bus.events import AT_REST, RunAccepted
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef


class Gone(Struct, frozen=True, omit_defaults=True):
    """The mark of a run that has been purged: which, by whom, and why."""

    run: str = ""
    by: str | None = None
    reason: str = ""


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
        return msgspec.structs.replace(msgspec.json.decode(body, type=Gone), run=run)
    except (msgspec.DecodeError, RecursionError):
        return Gone(run)


async def last_fork(log: JetStreamLog, ref: RunRef) -> int:
    """Return the sequence of the last note that a fork shares a run's events, 0 if there is none.

    :raises NoAnswer: if no answer came
    """
    found = await log.last_message(log.subjects.forked(ref))
    return found.sequence if found is not None else 0


async def mark_gone(log: JetStreamLog, ref: RunRef, mark: Gone, forked: int) -> None:
    """Mark a run as purged, if ``forked`` is still the last note of a fork: from here on there will be none.

    :raises Refused: if there is another one
    :raises Full: if there is no room for the mark
    :raises NoAnswer: if no answer came
    """
    await log.publish(_mark(log, ref, mark, guarded(forked, log.subjects.forked(ref))))


async def purge(log: JetStreamLog, ref: RunRef, starts: Sequence[int] = ()) -> int:
    """Remove everything of a run that is marked: events, large values, what it was told, and the messages of these
    sequences, which are its starts. Return how many messages are gone.

    :raises NoAnswer: if JetStream does not answer
    """
    removed = 0
    for sequence in starts:
        removed += await erase(log, sequence)
    for filter in log.subjects.belonging(ref):
        removed += await erase_all(log, filter)
    return removed


async def purge_again(log: JetStreamLog, ref: RunRef, mark: Gone) -> None:
    """Remove what is there of a run that is marked, if anything is: somebody took its id while it was purged, or the
    purge was broken off. It is marked anew before, so that whoever has heard of it meanwhile hears that it has gone.
    A run that goes on stays, whoever has marked it.

    :raises Full: if there is no room for the mark
    :raises NoAnswer: if no answer came; done again, it goes on
    """
    if await log.last_of_type(ref, RunAccepted.type) is not None and not await goes_on(log, ref):
        await log.publish(_mark(log, ref, mark, {}))
        await finish(log, ref)


async def goes_on(log: JetStreamLog, ref: RunRef) -> bool:
    """Return whether somebody performs a run: it has more than its first event, and is not at rest.

    :raises NoAnswer: if no answer came
    """
    last = await log.last(ref)
    return last is not None and last.readable and last.event.n > 1 and last.event.type not in AT_REST


async def finish(log: JetStreamLog, ref: RunRef) -> int:
    """Remove what is left of a run that is marked; return how many messages are gone.

    :raises NoAnswer: if JetStream does not answer; done again, it goes on
    """
    first = await log.last_of_type(ref, RunAccepted.type)
    return await purge(log, ref, [first.event.cause] if first is not None and first.event.cause else [])


def _mark(log: JetStreamLog, ref: RunRef, mark: Gone, guard: dict[str, str]) -> Message:
    return Message(log.subjects.gone(ref), msgspec.json.encode(msgspec.structs.replace(mark, run=ref.run)), guard)
