"""Writes runs from the log to an archive, and imports runs from an archive into a log."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from callboard.bus.errors import CallboardError, LogUnreadable, RunLost
from callboard.bus.events import ChildStart, Event, RunAccepted, RunEnd, encode_event
from callboard.bus.log.damage import require_first
from callboard.bus.log.port import Behind, Entry, Purged, Shares, append
from callboard.bus.log.recorded import Recorded, as_recorded, decode_recorded, is_lost, unreadable
from callboard.bus.log.successors import successor_of
from callboard.bus.nats.archive import Archive, ArchivedRun, ArchiveWriter
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.cooling import copy_events, copy_values
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import come_back, find_next_run, goes_on, purge_mark
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.runtime.client.client import UnknownRun

TOGETHER_MAX = 100
"""Maximum number of events that are appended at once."""

Progress = Callable[[int], None]
"""Called with the number of further runs that are done."""


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
    """The store has another run with the id of the archived run."""

    def __init__(self, ref: RunRef) -> None:
        remedy = "Import it with another id: --as ID."
        message = f"the store already has another run {ref.run!r}"
        super().__init__("archive.taken", message, f"tenant {ref.tenant}", remedy)


class NotOver(CallboardError):
    """The run had not ended when it was archived, and may continue in its original store."""

    def __init__(self, run: str) -> None:
        message = f"run {run!r} had not ended when it was archived, so it may continue in its original store"
        remedy = "Read it from the file, or archive and import it after it has ended."
        super().__init__("archive.open", message, run, remedy)


class HasChildren(CallboardError):
    """A run with child runs cannot have another id, because the ids of the children are derived from it."""

    def __init__(self, run: str) -> None:
        message = f"run {run!r} has child runs, whose ids are derived from its id"
        super().__init__("archive.children", message, run, "Import it with its original id.")


class IsContinued(CallboardError):
    """A run that another run continues cannot have another id: commands for it are passed on to that run."""

    def __init__(self, run: str, successor: str) -> None:
        message = f"run {run!r} is continued by run {successor!r}, to which commands for it are passed on"
        super().__init__("archive.continued", message, run, "Import it with its original id.")


class OriginLacks(CallboardError):
    """The origin of a fork is neither in the archive nor in the store."""

    def __init__(self, run: str, origin: str) -> None:
        message = f"run {run!r} shares events with run {origin!r}, which is neither in the archive nor in the store"
        super().__init__("archive.origin", message, run, f"First import an archive that contains {origin}.")


class Imported(Struct, frozen=True):
    """A run that is in the store after an import; the import has added it, or it was already there."""

    run: str
    events: int
    verdict: Literal["imported", "there already"]


async def archive_runs(
    log: JetStreamLog, tenant: str, runs: Sequence[str], path: Path, *, children: bool, progress: Progress
) -> list[ArchivedRun]:
    """Write runs to an archive, with the origins of forks, and with ``children`` also the runs that they have started
    and the runs that continue those.

    :raises UnknownRun: if a run does not exist; then no file is written
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
                found = await _archive_run(log, ref, writer)
                progress(1)
                below = await _with_next_runs(log, tenant, found.children) if children else []
                kin = [*below, *([found.origin] if found.origin else ())]
                new = [one for one in kin if one not in known]
                known.update(new)
                waiting += reversed(new)
        return writer.runs


async def _with_next_runs(log: JetStreamLog, tenant: str, runs: Sequence[str]) -> list[str]:
    """Return runs, each followed by those that continue it."""
    found: list[str] = []
    for run in runs:
        ref: RunRef | None = RunRef(tenant, run)
        while ref is not None:
            found.append(ref.run)
            ref = await find_next_run(log, ref)
    return found


async def _archive_run(log: JetStreamLog, ref: RunRef, writer: ArchiveWriter) -> ArchivedRun:
    """Add a run to an archive. Copies the events first: by then every large value that they name is in the log."""
    first: Event | None = None
    before: Event | None = None
    parent, origin, status, successor, events, last = "", "", "", "", 0, 0
    begun, wanted, there = dict[str, str](), set[str](), dict[str, set[int]]()
    counts: dict[str, int] = {}
    with writer.member(ref.run) as member:
        async with aclosing(copy_events(log, ref)) as messages:
            async for message in messages:
                member.add(message)
                events, last = events + 1, message.sequence
                mark = message.headers.get(MARK, "")
                event = as_recorded(decode_recorded(message.subject, message.sequence, ref, mark, message.data))
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
                        successor = successor_of(event) or ""
                    case _:
                        pass
        if first is None:
            raise UnknownRun(ref)
        async with aclosing(copy_values(log, ref)) as pieces:
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
        children=await _find_child_ids(log, ref, begun, shared=bool(origin)),
        successor=successor,
        sha256=member.sha256,
    )
    writer.runs.append(found)
    return found


async def _check_copied(log: JetStreamLog, ref: RunRef, last: int, lacking: Collection[str]) -> None:
    """Check that a run was read completely, with its large values, because it may be purged after archiving.

    :raises Behind: if the read replica lags
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
                return  # The run has been purged in the meantime.
            reason = f"its large value {digest} is missing"
            raise LogUnreadable(ref, 0, f"large value {digest} of run {ref.run}", reason) from None
        raise Behind(f"run {ref.run} was read without its large value {digest}")


async def _find_child_ids(log: JetStreamLog, ref: RunRef, begun: Mapping[str, str], *, shared: bool) -> list[str]:
    """Return the child runs of a run: those that it has ``begun``, by the keys of their effects. A fork also has new
    child runs in place of those that were open in its origin."""
    if not shared:
        return list(begun.values())
    keys = [item.event.key for item in await log.read(ref) if item.event.type == ChildStart.type]
    anew = [child_id(ref.run, key) for key in keys if key not in begun]
    return [*begun.values(), *[child for child in anew if await log.last(RunRef(ref.tenant, child)) is not None]]


async def import_runs(
    log: JetStreamLog, tenant: str, archive: Archive, runs: Sequence[ArchivedRun], progress: Progress
) -> list[Imported]:
    """Import runs of an archive into a log with their original ids, each origin before its forks.

    If an import was interrupted, the next one continues where it stopped.

    :raises ArchiveInvalid: if a run in the archive is damaged
    :raises IdTaken: if another run has the id of one of them
    :raises NotOver: if one of them had not ended
    :raises OriginLacks: if the origin of a fork is missing
    """
    # A fork needs the events that it shares with its origin.
    wanted = archive.with_origins(runs)
    there = [await _check_import(log, RunRef(tenant, run.run), archive, run) for run in wanted]
    found: list[Imported] = []
    for run, known in zip(wanted, there, strict=True):
        found.append(await _put(log, RunRef(tenant, run.run), archive, run, known))
        progress(1)
    return found


async def import_as(log: JetStreamLog, tenant: str, archive: Archive, run: ArchivedRun, id: str) -> Imported:
    """Import a run of an archive into a log with another id. Its origin keeps its id. Raises as `import_runs`.

    :raises HasChildren: if the run has child runs
    :raises IsContinued: if another run continues it
    """
    if run.children:
        raise HasChildren(run.run)
    if run.successor:
        raise IsContinued(run.run, run.successor)
    ref = RunRef(tenant, id)
    there = await _check_import(log, ref, archive, run)
    *origins, _own = archive.with_origins([run])
    await import_runs(log, tenant, archive, origins, lambda _more: None)
    return await _put(log, ref, archive, run, there)


async def import_for_display(log: JetStreamLog, tenant: str, archive: Archive) -> None:
    """Import all runs of an archive into a private log for display, even those that have not ended.

    :raises ArchiveInvalid: if a run in the archive is damaged
    """
    for run in archive.with_origins(archive.runs):
        await _put(log, RunRef(tenant, run.run), archive, run, [])


async def _check_import(log: JetStreamLog, ref: RunRef, archive: Archive, run: ArchivedRun) -> list[Recorded]:
    """Check that a run can be imported. Return its events that the log already has, from an interrupted import."""
    archive.verify(run)
    if run.origin and not archive.has(run.origin) and await log.last(RunRef(ref.tenant, run.origin)) is None:
        raise OriginLacks(run.run, run.origin)
    there = await _existing_events(log, ref)
    if not run.status and len(there) < run.events:
        raise NotOver(run.run)
    there = there if run.status else there[: run.events]  # The run has continued in this log.
    wanted = list(islice(_entries(archive, run, ref), len(there)))
    if [(one.id, one.data) for one in there] != [(one.id, one.data) for one in wanted]:
        raise IdTaken(ref)
    return there


async def _existing_events(log: JetStreamLog, ref: RunRef) -> list[Recorded]:
    """Return the events of a run in a log, without those that a fork shares with its origin."""
    if await log.last(ref) is None:
        return []
    if await purge_mark(log, ref) is not None and not await goes_on(log, ref):
        return []  # The run was purged; its remaining messages are removed before it is imported again.
    return [one for one in await log.read(ref) if one.ref == ref]


async def _put(
    log: JetStreamLog, ref: RunRef, archive: Archive, run: ArchivedRun, there: Sequence[Recorded]
) -> Imported:
    """Append the missing events of a run, after its large values. A purged run is restored."""
    if len(there) == run.events:
        return Imported(ref.run, run.events, "there already")
    if not there and await purge_mark(log, ref) is not None:
        await come_back(log, ref)
    for piece in archive.messages(run):
        if not archive.is_event(piece):
            *_, digest, number = piece.subject.split(".")
            headers = {name: value for name, value in piece.headers.items() if name == COUNT}
            await log.publish(OutgoingMessage(f"{log.subjects.blob(ref, digest)}.{number}", piece.data, headers))
    after = there[-1].sequence if there else 0
    entries = islice(_entries(archive, run, ref), len(there), None)
    # If the origin is purged at the same time, either the purge finds this note, or this append finds the purge's mark.
    beside = Shares(RunRef(ref.tenant, run.origin)) if run.origin and not there else None
    try:
        while together := list(islice(entries, TOGETHER_MAX if beside is None else 1)):
            after = await append(log, ref, together, after, beside)
            beside = None
    except RunLost as error:
        raise IdTaken(ref) from error
    except Purged as error:
        raise OriginLacks(run.run, run.origin) from error
    return Imported(ref.run, run.events, "imported")


def _entries(archive: Archive, run: ArchivedRun, ref: RunRef) -> Iterator[Entry]:
    """Yield the events of a run for a log. With its original id they are byte for byte those that were recorded."""
    for message in archive.messages(run):
        if archive.is_event(message):
            item = archive.decode_copied(run, message)
            if not item.readable:
                raise unreadable(item)
            event = item.event
            renamed = ref.run != run.run
            data = encode_event(msgspec.structs.replace(event, run=ref.run)) if renamed else item.data
            yield Entry(event.n, event.epoch, event.type, archive.definition_of(message), item.id, data)
