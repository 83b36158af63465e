"""Archiving: runs of the log into an archive, and those of an archive into a log again."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from callboard.bus.child_ids import child_id
from callboard.bus.errors import CallboardError, LogUnreadable, RunLost
from callboard.bus.events import ChildStart, Event, RunAccepted, RunEnd, encode_event
from callboard.bus.log.damage import require_first
from callboard.bus.log.port import Behind, Entry, OriginGone, Recorded, Shares, append, is_lost, recorded, unreadable
from callboard.bus.nats.archive import Archive, ArchivedRun, ArchiveWriter
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.commit import Message
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.message_copies import copied
from callboard.bus.nats.purge import come_back, goes_on, gone
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.service.api.client import UnknownRun

TOGETHER_MAX = 100
"""Events that are appended in one go."""

Progress = Callable[[int], None]
"""Is told how many more runs are done."""


class _Parent(Struct, frozen=True):
    run: str


class _Accepted(Struct, frozen=True):
    parent: _Parent | None = None
    forked_from: _Parent | None = None


class _Ended(Struct, frozen=True):
    status: str


class _Child(Struct, frozen=True):
    child: str


class IdTaken(CallboardError):
    """A run of the archive's id, and not that one, is in the store."""

    def __init__(self, ref: RunRef) -> None:
        remedy = "Import it under another id: --as ID."
        super().__init__("archive.taken", f"there is another run {ref.run!r} already", f"tenant {ref.tenant}", remedy)


class NotOver(CallboardError):
    """A run had not ended when it was archived, and may go on where it came from."""

    def __init__(self, run: str) -> None:
        message = f"run {run!r} had not ended when it was archived: it may go on where it was, and would be two"
        super().__init__("archive.open", message, run, "Look at it in the file; import it once it has ended.")


class HasChildren(CallboardError):
    """A run that had child runs cannot have another id: theirs follow from it."""

    def __init__(self, run: str) -> None:
        message = f"run {run!r} has started child runs, whose ids follow from its own"
        super().__init__("archive.children", message, run, "Import it under its own id.")


class OriginLacks(CallboardError):
    """What a run is a fork of is neither in the archive nor in the store."""

    def __init__(self, run: str, origin: str) -> None:
        message = f"run {run!r} shares events with run {origin!r}, which is not there"
        super().__init__("archive.origin", message, run, f"Import an archive that has {origin} before.")


class Imported(Struct, frozen=True):
    """A run that is in the store now: brought there, or there already, the very same."""

    run: str
    events: int
    verdict: Literal["imported", "there already"]


async def archive_runs(
    log: JetStreamLog, tenant: str, runs: Sequence[str], path: Path, *, children: bool, progress: Progress
) -> list[ArchivedRun]:
    """Write runs to an archive, with those that they are forks of, and with ``children`` all that they have started.

    :raises UnknownRun: if there is no such run; then no file is written
    :raises LogUnreadable: if events of a run are missing
    :raises OSError: if the file cannot be written
    :raises NoAnswer: if the log does not answer
    """
    waiting, known = list(reversed(runs)), set(runs)
    named = set(runs)
    with ArchiveWriter(path, log.subjects.prefix) as writer:
        while waiting:
            ref = RunRef(tenant, waiting.pop())
            if ref.run in named or await log.last(ref) is not None:
                found = await _archived(log, ref, writer)
                progress(1)
                kin = [*(found.children if children else ()), *([found.origin] if found.origin else ())]
                new = [one for one in kin if one not in known]
                known.update(new)
                waiting += reversed(new)
        return writer.runs


async def _archived(log: JetStreamLog, ref: RunRef, writer: ArchiveWriter) -> ArchivedRun:
    """Take a run in: its events first, so that every large value that one of them names is there behind them."""
    first: Event | None = None
    before: Event | None = None
    parent, origin, status, events, last = "", "", "", 0, 0
    begun, wanted, there = dict[str, str](), set[str](), dict[str, set[int]]()
    counts: dict[str, int] = {}
    with writer.member(ref.run) as member:
        async with aclosing(copied(log, log.subjects.run(ref))) as messages:
            async for message in messages:
                member.add(message)
                events, last = events + 1, message.sequence
                event = recorded(message.subject, message.sequence, ref, "", message.data).event
                wanted.update(event.blobs)
                first = first or require_first(ref, [event])
                if before is not None and event.n > before.n + 1 and (before.n > 1 or not origin):
                    reason = f"it is number {event.n}, after number {before.n}"
                    raise LogUnreadable(ref, message.sequence, f"{event.type} of run {ref.run}", reason)
                before = event if event.n else None
                match event.type:
                    case RunAccepted.type:
                        accepted = decode_json(event.payload, type=_Accepted)
                        parent = accepted.parent.run if accepted.parent is not None else ""
                        origin = accepted.forked_from.run if accepted.forked_from is not None else ""
                    case ChildStart.type:
                        begun[event.key] = decode_json(event.payload, type=_Child).child
                    case RunEnd.type:
                        status = decode_json(event.payload, type=_Ended).status
                    case _:
                        pass
        if first is None:
            raise UnknownRun(ref)
        async with aclosing(copied(log, log.subjects.blob(ref, "*") + ".*")) as pieces:
            async for piece in pieces:
                member.add(piece)
                *_, digest, number = piece.subject.split(".")
                there.setdefault(digest, set()).add(int(number))
                counts[digest] = int(piece.headers.get(COUNT, 1))
        lacking = [digest for digest in wanted if len(there.get(digest, ())) < counts.get(digest, 1)]
        await _check_copied(log, ref, last, lacking)
    found = ArchivedRun(
        tenant=ref.tenant,
        run=ref.run,
        definition=first.definition,
        accepted_at=first.time,
        status=status,
        events=events,
        messages=member.messages,
        parent=parent,
        origin=origin,
        children=await _children(log, ref, begun, shared=bool(origin)),
        sha256=member.sha256,
    )
    writer.runs.append(found)
    return found


async def _check_copied(log: JetStreamLog, ref: RunRef, last: int, lacking: Collection[str]) -> None:
    """Check that a run was read up to its end, with its large values: what is archived may be purged then.

    :raises Behind: if a replica was read that lags
    :raises LogUnreadable: if the last event or a large value is damaged
    """
    end = await log.last(ref)
    if is_lost(end):
        raise LogUnreadable(ref, 0, f"the last event of run {ref.run}", "its last event is damaged")
    if end is not None and end.sequence > last:
        raise Behind(f"run {ref.run} was read up to sequence {last}, and goes up to {end.sequence}")
    for digest in lacking:
        try:
            await log.stored_blob(ref, digest)
        except KeyError:
            if end is None:
                return  # The run has been purged since.
            reason = f"its large value {digest} is missing"
            raise LogUnreadable(ref, 0, f"large value {digest} of run {ref.run}", reason) from None
        raise Behind(f"run {ref.run} was read without its large value {digest}")


async def _children(log: JetStreamLog, ref: RunRef, begun: Mapping[str, str], *, shared: bool) -> list[str]:
    """The child runs of a run: those that it has ``begun``, by the keys of their effects, and of a fork those that it
    has started anew because its origin had them under way."""
    if not shared:
        return list(begun.values())
    keys = [item.event.key for item in await log.read(ref) if item.event.type == ChildStart.type]
    anew = [child_id(ref.run, key) for key in keys if key not in begun]
    return [*begun.values(), *[child for child in anew if await log.last(RunRef(ref.tenant, child)) is not None]]


async def import_runs(
    log: JetStreamLog, tenant: str, archive: Archive, runs: Sequence[ArchivedRun], progress: Progress
) -> list[Imported]:
    """Put runs of an archive into a log, under their own ids, and before a fork its origin. Done again it goes on where
    it was.

    :raises ArchiveInvalid: if one of them is not what was written
    :raises IdTaken: if another run has the id of one
    :raises NotOver: if one had not ended
    :raises OriginLacks: if one is a fork of a run that is not there
    """
    # What a fork shares with its origin has to stand before it.
    wanted = archive.with_origins(runs)
    there = [await _checked(log, RunRef(tenant, run.run), archive, run) for run in wanted]
    found: list[Imported] = []
    for run, known in zip(wanted, there, strict=True):
        found.append(await _put(log, RunRef(tenant, run.run), archive, run, known))
        progress(1)
    return found


async def import_as(log: JetStreamLog, tenant: str, archive: Archive, run: ArchivedRun, id: str) -> Imported:
    """Put a run of an archive into a log under another id; what it is a fork of keeps its own. Raises as `import_runs`.

    :raises HasChildren: if it has started child runs
    """
    if run.children:
        raise HasChildren(run.run)
    ref = RunRef(tenant, id)
    there = await _checked(log, ref, archive, run)
    *origins, _own = archive.with_origins([run])
    await import_runs(log, tenant, archive, origins, lambda _more: None)
    return await _put(log, ref, archive, run, there)


async def stand(log: JetStreamLog, tenant: str, archive: Archive) -> None:
    """Put all runs of an archive into a log of nobody else's, to be looked at: over or not.

    :raises ArchiveInvalid: if one of them is not what was written
    """
    for run in archive.with_origins(archive.runs):
        await _put(log, RunRef(tenant, run.run), archive, run, [])


async def _checked(log: JetStreamLog, ref: RunRef, archive: Archive, run: ArchivedRun) -> list[Recorded]:
    """Check that a run can be put into a log; return what is there of it, if an import was broken off."""
    archive.verify(run)
    if run.origin and not archive.has(run.origin) and await log.last(RunRef(ref.tenant, run.origin)) is None:
        raise OriginLacks(run.run, run.origin)
    there = await _there(log, ref)
    if not run.status and len(there) < run.events:
        raise NotOver(run.run)
    there = there if run.status else there[: run.events]  # It has gone on here.
    wanted = list(islice(_entries(archive, run, ref), len(there)))
    if [(one.id, one.data) for one in there] != [(one.id, one.data) for one in wanted]:
        raise IdTaken(ref)
    return there


async def _there(log: JetStreamLog, ref: RunRef) -> list[Recorded]:
    """What a log has of a run; of a fork only what is its own: the rest is its origin's."""
    if await log.last(ref) is None:
        return []
    if await gone(log, ref) is not None and not await goes_on(log, ref):
        return []  # What is left of it goes before it comes back.
    return [one for one in await log.read(ref) if one.ref == ref]


async def _put(
    log: JetStreamLog, ref: RunRef, archive: Archive, run: ArchivedRun, there: Sequence[Recorded]
) -> Imported:
    """Append what is not there yet of a run; its large values first. One that was purged comes back."""
    if len(there) == run.events:
        return Imported(ref.run, run.events, "there already")
    if not there and await gone(log, ref) is not None:
        await come_back(log, ref)
    for piece in archive.messages(run):
        if not archive.is_event(piece):
            *_, digest, number = piece.subject.split(".")
            headers = {name: value for name, value in piece.headers.items() if name == COUNT}
            await log.publish(Message(f"{log.subjects.blob(ref, digest)}.{number}", piece.data, headers))
    after = there[-1].sequence if there else 0
    entries = islice(_entries(archive, run, ref), len(there), None)
    # Whoever purges the origin meanwhile meets with the note, or the fork with the mark.
    beside = Shares(RunRef(ref.tenant, run.origin)) if run.origin and not there else None
    try:
        while together := list(islice(entries, TOGETHER_MAX if beside is None else 1)):
            after = await append(log, ref, together, after, beside)
            beside = None
    except RunLost as error:
        raise IdTaken(ref) from error
    except OriginGone as error:
        raise OriginLacks(run.run, run.origin) from error
    return Imported(ref.run, run.events, "imported")


def _entries(archive: Archive, run: ArchivedRun, ref: RunRef) -> Iterator[Entry]:
    """The events of a run as they go into a log; under its own id each byte is the one that was recorded."""
    for message in archive.messages(run):
        if archive.is_event(message):
            item = archive.recorded(run, message)
            if not item.readable:
                raise unreadable(item)
            event = item.event
            renamed = ref.run != run.run
            data = encode_event(msgspec.structs.replace(event, run=ref.run)) if renamed else item.data
            yield Entry(event.n, event.epoch, event.type, archive.definition_of(message), item.id, data)
