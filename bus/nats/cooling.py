"""Moves runs that have ended out of the stream into segments, and back; and rewrites segments without purged runs.

A run moves in steps, each of which leaves it complete for readers:

1. The segment with all messages of the run is stored, and survives a loss of power.
2. The segment's mark is stored in the stream. From now on readers find its runs there.
3. Of each run the large values, the commands and the start message are removed from the stream, and then all events but
   the last.

The last event stays in the stream. So the run's id stays in use by the guard of appends, and readers find the run's
end. After an interruption the next move continues: it repeats the first step if there is no mark, and else the last.

A segment is marked once: the guard of its mark requires an empty subject. Before a segment without a mark is removed,
an invalid one takes the place of its mark, so a move that was interrupted for long cannot mark it later.
"""

import datetime as dt
from array import array
from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
import structlog

from callboard.bus.errors import CallboardError, LogUnreadable, RunLost
from callboard.bus.events import Event, RunEnd
from callboard.bus.log.port import AppendRefused, Entry, Full, NoAnswer, append
from callboard.bus.log.recorded import as_recorded, decode_recorded
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.cold_runs import SegmentMark, decode_segment_mark, mark_segment
from callboard.bus.nats.commit import OutgoingMessage, guard_headers
from callboard.bus.nats.feed import MARK, RESTORED
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import erase_all, erase_start, finish, make_room, mark_again, purge_mark
from callboard.bus.nats.segments import (
    ManifestEntry,
    SegmentBuilder,
    SegmentDamaged,
    SegmentStore,
    is_of_stream,
    read_manifest,
)
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.subjects import RunRef

logger = structlog.get_logger(__name__)

SEGMENT_RUNS_MAX = 2_000
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""Limits of a segment: the number of its runs, and their uncompressed bytes, which are in memory while it is made."""

MERGED_TOGETHER = 10
"""The number of small segments that are merged into one. Their numbers of runs have equally many digits."""

RESTORED_AT_ONCE = 100
"""Events that are moved back to the stream with one append."""

ORPHAN_AGE_S = 3600.0
"""A segment that no mark names is removed if it is older. A younger one may be about to be marked."""


class NotCold(CallboardError):
    """The run is not in cold storage."""

    def __init__(self, ref: RunRef) -> None:
        super().__init__("cold.run", f"run {ref.run!r} is not in cold storage", f"tenant {ref.tenant}")


def _event(ref: RunRef, message: Copied) -> Event:
    """Return the event in a message of a run, also if only a newer version knows its payload."""
    mark = message.headers.get(MARK, "")
    return as_recorded(decode_recorded(message.subject, message.sequence, ref, mark, message.data))


async def copy_events(log: JetStreamLog, ref: RunRef) -> AsyncGenerator[Copied]:
    """Yield the messages of a run's own events, wherever they are.

    :raises LogUnreadable: if its segment cannot be read
    :raises NoAnswer: if no answer came
    """
    before, last = 0, 0
    async with aclosing(log.copy_messages(log.subjects.run(ref))) as messages:
        async for one in messages:
            event = _event(ref, one)
            missing = event.type == RunEnd.type and event.n > before + 1
            if missing and (cold := await log.cold.run_messages(ref, one.sequence)) is not None:
                for each in cold:
                    if _is_event(log, each) and each.sequence > last:
                        yield each
                return  # Later events are those of an interrupted move back to the stream.
            yield one
            before, last = event.n, one.sequence


async def copy_values(log: JetStreamLog, ref: RunRef) -> AsyncGenerator[Copied]:
    """Yield the messages with the pieces of a run's large values, wherever they are. Raises as `copy_events`."""
    found = set[str]()
    async with aclosing(log.copy_messages(log.subjects.blob(ref, "*") + ".*")) as messages:
        async for one in messages:
            found.add(one.subject)
            yield one
    for cold in await log.cold.run_messages(ref) or ():
        if not _is_event(log, cold) and cold.subject not in found:
            yield cold


def _is_event(log: JetStreamLog, message: Copied) -> bool:
    return message.subject.startswith(f"{log.subjects.prefix}.run.")


async def cool_runs(log: JetStreamLog, store: SegmentStore, refs: Sequence[RunRef]) -> list[RunRef]:
    """Move runs of one tenant that have ended to cold storage; return those that were moved.

    Runs that are open, damaged or purged stay.

    :raises OSError: if a segment cannot be stored
    :raises NoAnswer: if no answer came; a further call continues
    """
    moved: list[RunRef] = []
    builder, lasts = None, dict[RunRef, int]()
    for ref in refs:
        messages = await _ended_run(log, ref)
        if messages is None:
            continue
        last = max(one.sequence for one in messages if _is_event(log, one))
        if await _is_stored(log, ref, last, messages):
            # An earlier move was interrupted after the mark.
            moved += [ref] if await _remove(log, ref, last) else []
            continue
        if not _has_values(log, ref, messages):
            continue
        builder = builder or SegmentBuilder(ref.tenant, log.store)
        builder.add(ref, last, messages)
        lasts[ref] = last
        if len(lasts) >= SEGMENT_RUNS_MAX or builder.size >= SEGMENT_BYTES_MAX:
            moved += await _finish(log, store, builder, lasts)
            builder, lasts = None, {}
    if builder is not None:
        moved += await _finish(log, store, builder, lasts)
    return moved


async def _ended_run(log: JetStreamLog, ref: RunRef) -> list[Copied] | None:
    """Return the messages of a run in the stream; None if it has not ended, or lacks events there."""
    events = [one async for one in log.copy_messages(log.subjects.run(ref))]
    before = 0
    for one in events:
        n = _event(ref, one).n
        # A fork's own events continue after those that it shares with its origin.
        if n != before + 1 and not (before == 1 and n > 1):
            return None
        before = n
    end = await log.last(ref)
    if end is None or end.event.type != RunEnd.type or not events or end.sequence != events[-1].sequence:
        return None
    return [*events, *[one async for one in log.copy_messages(log.subjects.blob(ref, "*") + ".*")]]


def _has_values(log: JetStreamLog, ref: RunRef, messages: Sequence[Copied]) -> bool:
    """Return whether all large values of a run are among its messages."""
    wanted, there, counts = set[str](), dict[str, set[int]](), dict[str, int]()
    for one in messages:
        if _is_event(log, one):
            wanted.update(_event(ref, one).blobs)
        else:
            *_, digest, number = one.subject.split(".")
            there.setdefault(digest, set()).add(int(number))
            counts[digest] = int(one.headers.get(COUNT, "1"))
    return all(len(there.get(digest, ())) >= counts.get(digest, 1) for digest in wanted)


async def _is_stored(log: JetStreamLog, ref: RunRef, last: int, messages: Sequence[Copied]) -> bool:
    """Return whether cold storage has the events of a run as the stream has them."""
    try:
        cold = await log.cold.run_messages(ref, last)
    except LogUnreadable:
        return False  # A segment that may have them is missing or damaged.
    return cold is not None and {(one.sequence, one.data) for one in messages} <= {
        (one.sequence, one.data) for one in cold
    }


async def _finish(
    log: JetStreamLog, store: SegmentStore, builder: SegmentBuilder, lasts: dict[RunRef, int]
) -> list[RunRef]:
    data, listed = builder.finish()
    await store.put(builder.name, data)
    mark = msgspec.json.encode(mark_segment(builder.name, listed))
    try:
        marked = await _publish_mark(log, builder.name, mark)
    except Full:
        # The move itself makes room, but only after the mark.
        for ref in lasts:
            await make_room(log, ref)
        marked = await _publish_mark(log, builder.name, mark)
    return [ref for ref, last in lasts.items() if marked and await _remove(log, ref, last)]


async def _publish_mark(log: JetStreamLog, segment: str, body: bytes) -> bool:
    """Store the mark of a segment, unless there is one; return whether it was stored."""
    subject = log.subjects.segment_mark(segment)
    try:
        await log.publish(OutgoingMessage(subject, body, guard_headers(0, subject)), frees_room=True)
    except AppendRefused:
        return False
    return True


async def _remove(log: JetStreamLog, ref: RunRef, last: int) -> bool:
    """Remove a marked run from the stream, except for its last event; return whether it is still there.

    Each removal ends at a sequence. So if another process restores the run now, or imports one with its id, nothing
    that it stores is removed.
    """
    before = await log.last_sequence() + 1
    end = await log.last(ref)
    purged = await log.last_message(log.subjects.gone_subject(ref)) is not None
    if purged or end is None or end.sequence != last:
        return False  # It has been purged, or replaced, since it was copied.
    await erase_start(log, ref, before)
    for filter in log.subjects.pointless(ref):
        await erase_all(log, filter, before)
    # Values are stored before the event that refers to them.
    await erase_all(log, log.subjects.blob(ref, "*") + ".*", last)
    await erase_all(log, log.subjects.run(ref), last)
    return True


async def warm_run(log: JetStreamLog, ref: RunRef) -> int:
    """Move a run from cold storage back to the stream; return the number of its events.

    Its events are appended again, as when a run is imported from an archive. The run's end stays before them until they
    are complete. If several processes restore the run, each continues where another one is.

    :raises NotCold: if it is not in cold storage, or is purged in the meantime
    :raises LogUnreadable: if its segment cannot be read
    :raises NoAnswer: if no answer came; a further call continues
    """
    if (messages := await log.cold.run_messages(ref)) is None:
        raise NotCold(ref)
    for one in messages:
        if not _is_event(log, one):
            headers = {name: value for name, value in one.headers.items() if name == COUNT}
            await log.publish(OutgoingMessage(one.subject, one.data, headers))
    events = [one for one in messages if _is_event(log, one)]
    entries: list[Entry] = []
    for one in events:
        item = decode_recorded(one.subject, one.sequence, ref, one.headers.get(MARK, ""), one.data)
        definition = log.subjects.parse_event(one.subject).definition
        # A new id, because the append would recognize the run's end as its own last entry.
        entries.append(
            Entry(item.event.n, item.event.epoch, item.event.type, definition, f"{item.id}{RESTORED}", one.data)
        )
    try:
        there = await _append_again(log, ref, entries, events[-1].sequence)
    except RunLost:
        there = False
        if await purge_mark(log, ref) is None:
            raise
    if (mark := await purge_mark(log, ref)) is not None:
        # Remove messages that were stored after the purge.
        await mark_again(log, ref, mark)
        await finish(log, ref)
        there = False
    if not there:
        raise NotCold(ref)
    return len(entries)


async def _append_again(log: JetStreamLog, ref: RunRef, entries: Sequence[Entry], end: int) -> bool:
    """Append those events of a run that the stream does not have after the run's end, and then remove this end.

    Events before this end, which an interrupted move has left, are removed with it. Return whether the stream still has
    the run.
    """
    places = {entry.id: place for place, entry in enumerate(entries, 1)}
    last = await log.last_stored(ref)
    while last is not None and (stored := places.get(last.id, 0)) < len(entries):
        after = last.sequence if stored else end
        await append(_Stream(log), ref, entries[stored : stored + RESTORED_AT_ONCE], after)
        last = await log.last_stored(ref)
    await erase_all(log, log.subjects.run(ref), end + 1)
    return last is not None


class _Stream:
    """The log for appends to a run that is being moved back: its last event is the last one in the stream."""

    def __init__(self, log: JetStreamLog) -> None:
        self.put = log.put
        self.last = log.last_stored


async def compact(log: JetStreamLog, store: SegmentStore) -> int:
    """Rewrite the segments that contain purged or restored runs; return the number of runs that were removed.

    :raises OSError: if a segment cannot be read or stored
    :raises SegmentDamaged: if the manifest of a segment is damaged; the other segments have been rewritten
    :raises LogUnreadable: likewise, if a run in a segment is damaged
    :raises NoAnswer: if no answer came; a further call continues
    """
    removed = 0
    damaged: CallboardError | None = None
    names = [name for name in await store.names() if is_of_stream(name, log.store)]
    async with aclosing(_segment_marks(log, None)) as marks:
        marked = {mark.segment: mark async for mark in marks}
    replaced = {name for mark in marked.values() for name in mark.replaces}
    ends: dict[str, array[int]] = {}
    for name in names:
        if name in replaced:
            # An earlier compaction was interrupted after it had rewritten the segment.
            await _drop(log, store, name)
            continue
        try:
            listed = await read_manifest(store, name)
            if name not in marked:
                removed += len(listed) if await _drop_orphan(log, store, name, listed) else 0
                continue
            tenant = listed[0].tenant
            if tenant not in ends:
                ends[tenant] = await _ends_in_stream(log, tenant)
            live = [one for one in listed if await _is_in_stream(log, one.end, ends[tenant])]
            if len(live) == len(listed) or (live and not await _rewrite(log, store, name, live)):
                continue
        except FileNotFoundError:
            continue  # Another process compacts, too.
        except (SegmentDamaged, LogUnreadable) as error:
            damaged = damaged or error
            continue
        await _drop(log, store, name)
        removed += len(listed) - len(live)
    if damaged is not None:
        raise damaged
    return removed


async def _ends_in_stream(log: JetStreamLog, tenant: str) -> "array[int]":
    """Return the sequences of the last events of a tenant's runs that the stream has, ascending."""
    filter = log.subjects.events(tenant, event_type=RunEnd.type)
    async with aclosing(log.copy_messages(filter)) as messages:
        return array("Q", [one.sequence async for one in messages])


async def _is_in_stream(log: JetStreamLog, end: int, ends: "array[int]") -> bool:
    """Return whether the stream has a run's last event; ``ends`` are those that were read from any server."""
    place = bisect_left(ends, end)
    # A replica may lag. So a run is removed only if the leader does not have its end.
    return (place < len(ends) and ends[place] == end) or await log.message(end) is not None


async def _drop_orphan(log: JetStreamLog, store: SegmentStore, name: str, listed: Sequence[ManifestEntry]) -> bool:
    """Remove a segment without a mark; return whether it was removed.

    A process may be about to mark a segment that was stored just now. It is removed nevertheless if all of its runs
    have been purged.
    """
    if await store.age_s(name) <= ORPHAN_AGE_S:
        for one in listed:
            if await log.last_message(log.subjects.gone_subject(one.ref)) is None:
                return False
    if not await _publish_mark(log, name, b"{}"):
        mark = await log.last_message(log.subjects.segment_mark(name))
        if mark is None or decode_segment_mark(mark.data) is not None:
            return False  # It has been marked just now.
    await store.delete(name)
    return True


async def _rewrite(log: JetStreamLog, store: SegmentStore, name: str, live: Sequence[ManifestEntry]) -> bool:
    """Copy runs of a segment to a new one; return whether that is marked."""
    builder = SegmentBuilder(live[0].tenant, log.store)
    for one in live:
        builder.add(one.ref, one.end, await log.cold.segments.messages(one.ref, one.place))
    return await _store_copy(log, store, builder, [name])


async def _store_copy(log: JetStreamLog, store: SegmentStore, builder: SegmentBuilder, copied: Sequence[str]) -> bool:
    """Store a segment with the runs of others; return whether it is marked."""
    data, listed = builder.finish()
    await store.put(builder.name, data)
    return await _publish_mark(log, builder.name, msgspec.json.encode(mark_segment(builder.name, listed, copied)))


async def _drop(log: JetStreamLog, store: SegmentStore, name: str) -> None:
    await erase_all(log, log.subjects.segment_mark(name))
    await store.delete(name)


async def merge(log: JetStreamLog, store: SegmentStore) -> int:
    """Merge small segments, of which frequent rounds with few runs store many; return how many were merged.

    Segments are merged with others of their magnitude, so a run is copied a few times at most.

    :raises OSError: if a segment cannot be read or stored
    :raises NoAnswer: if no answer came; a further call continues
    """
    async with aclosing(_segment_marks(log, None)) as marks:
        marked = {mark.segment: mark async for mark in marks if is_of_stream(mark.segment, log.store)}
    for name in {name for mark in marked.values() for name in mark.replaces} & {*marked}:
        # An earlier call, or a compaction, was interrupted after it had copied the runs.
        await _drop(log, store, name)
        del marked[name]
    alike: dict[tuple[str, int], list[str]] = {}
    for mark in marked.values():
        if mark.runs * 2 <= SEGMENT_RUNS_MAX and mark.size * MERGED_TOGETHER <= SEGMENT_BYTES_MAX:
            tenant, _, _ = mark.segment.rpartition("/")
            alike.setdefault((tenant, len(str(mark.runs))), []).append(mark.segment)
    merged = 0
    for names in alike.values():
        for at in range(0, len(names) - MERGED_TOGETHER + 1, MERGED_TOGETHER):
            merged += await _merge(log, store, names[at : at + MERGED_TOGETHER])
    return merged


async def _merge(log: JetStreamLog, store: SegmentStore, names: Sequence[str]) -> int:
    """Copy the runs of several segments to a new one, up to its maximum; return the number of segments copied."""
    builder: SegmentBuilder | None = None
    copied, count = list[str](), 0
    for name in names:
        try:
            listed = await read_manifest(store, name)
            if count + len(listed) > SEGMENT_RUNS_MAX:
                break
            messages = [await log.cold.segments.messages(one.ref, one.place) for one in listed]
        except FileNotFoundError:
            continue  # Another process compacts or merges, too.
        except (SegmentDamaged, LogUnreadable) as error:
            logger.warning("a segment of cold storage cannot be merged", segment=name, error=str(error))
            continue
        builder = builder or SegmentBuilder(listed[0].tenant, log.store)
        for one, those in zip(listed, messages, strict=True):
            builder.add(one.ref, one.end, those)
        copied.append(name)
        count += len(listed)
    if builder is None or len(copied) < 2 or not await _store_copy(log, store, builder, copied):
        return 0
    for name in copied:
        await _drop(log, store, name)
    return len(copied)


# -- what cold storage contains ----------------------------------------------------------------------------------------


async def _segment_marks(
    log: JetStreamLog, tenant: str | None, since: dt.datetime | None = None
) -> AsyncGenerator[SegmentMark]:
    """Yield the marks of a tenant's segments, with None of all tenants', that were stored at ``since`` or later."""
    async with aclosing(log.copy_messages(log.subjects.segment_marks(tenant), since)) as messages:
        async for one in messages:
            if (mark := decode_segment_mark(one.data)) is not None:
                yield mark


async def count_cold_runs(log: JetStreamLog, tenant: str | None) -> int:
    """Return the number of runs in the segments of a tenant, with None of all tenants.

    Purged and restored runs are counted until their segment is compacted.

    :raises NoAnswer: if no answer came
    """
    async with aclosing(_segment_marks(log, tenant)) as marks:
        return sum([mark.runs async for mark in marks])


async def cold_runs(
    log: JetStreamLog, tenant: str | None, since: dt.datetime | None = None
) -> AsyncGenerator[tuple[RunRef, int]]:
    """Yield the runs of segments that were marked at ``since`` or later, with the sequence of their last event.

    Runs that have been purged or restored since may be among them, and runs of a segment that cannot be read are not.

    :raises NoAnswer: if no answer came
    """
    store = log.cold.store
    async with aclosing(_segment_marks(log, tenant, since)) as marks:
        async for mark in marks:
            try:
                listed = await read_manifest(store, mark.segment) if store is not None else []
            except FileNotFoundError:
                continue  # It has been rewritten: the new segment has a later mark.
            except OSError as error:
                raise NoAnswer(f"the segments of cold storage cannot be reached: {error}") from error
            except SegmentDamaged as error:
                logger.warning("a segment of cold storage cannot be read", segment=mark.segment, error=str(error))
                continue
            for one in listed:
                yield one.ref, one.end
