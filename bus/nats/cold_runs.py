"""Runs in cold storage, as readers of the log see them.

The stream keeps the last event of such a run, so that its id stays in use and the run has a last event, and a mark for
each segment, which says where in the stream the last events of its runs are. A reader that finds events of a run
missing looks for a segment that has a run with this last event.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import anyio
import msgspec
from msgspec import Struct

from callboard.bus.errors import LogUnreadable
from callboard.bus.events import RunEnd
from callboard.bus.log.encryption import KeyRing
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded, decrypt_event
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.segments import (
    ManifestEntry,
    RunLocation,
    SegmentDamaged,
    SegmentStore,
    expand,
    messages_at,
    read_manifest,
)
from callboard.bus.nats.stored_messages import Copied, StoredMessages, is_of_type
from callboard.bus.subjects import RunRef
from callboard.lib.json_errors import JSON_ERRORS

BLOCKS_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of expanded blocks in memory. Runs of one time are in one block, and are often read together."""

LARGE_BYTES = 1024 * 1024
LARGE_BYTES_MAX = 64 * 1024 * 1024
"""The size of a run from which on its messages stay in memory, and their maximum size together. Each large value of a
run is read by a separate call, which would expand the block again."""

MARK_TRIES = 3
MARK_RETRY_S = 0.2
"""Number of attempts to read the mark of a segment, and the pause between them. On a replica it may arrive later than
on the leader."""

MANIFESTS_MAX = 8
"""The maximum number of manifests in memory, each about a megabyte."""

ENDS_MAX = 2_000
"""The maximum number of segments whose ends of runs are in memory, 16 KB each, after the manifest was read once."""

SPANS_MAX = 16
"""The maximum number of spans in a mark."""


class SegmentMark(Struct, frozen=True, omit_defaults=True):
    """The mark of a segment in the stream.

    ``spans`` are the parts of the stream, as first and last sequence, that have the last events of its runs, ascending.
    They may also have events of other runs. ``size`` is the number of uncompressed bytes. ``replaces`` are the segments
    whose runs were copied to this one.
    """

    segment: str
    spans: list[tuple[int, int]]
    runs: int
    size: int
    replaces: list[str] = []

    def may_have(self, end: int) -> bool:
        """Return whether the segment may have a run whose last event has this sequence."""
        return self.spans[0][0] <= end <= self.spans[-1][1] and any(a <= end <= b for a, b in self.spans)


def mark_segment(segment: str, listed: Sequence[ManifestEntry], replaces: Sequence[str] = ()) -> SegmentMark:
    """Return the mark of a segment with these runs."""
    ends = sorted(one.end for one in listed)
    gaps = sorted((b - a for a, b in pairwise(ends)), reverse=True)
    # A run that lasted longer than the others must not widen the span: the widest gaps separate spans.
    widest = max(1, gaps[SPANS_MAX - 1]) if len(gaps) >= SPANS_MAX else 1
    spans = [[ends[0], ends[0]]]
    for end in ends:
        if end - spans[-1][1] > widest:
            spans.append([end, end])
        spans[-1][1] = end
    size = sum(one.place.size for one in listed)
    return SegmentMark(segment, [(first, last) for first, last in spans], len(ends), size, list(replaces))


def decode_segment_mark(data: bytes) -> SegmentMark | None:
    """Decode a mark; None if it is invalid, or that of a segment that may not be used any longer."""
    try:
        mark = msgspec.json.decode(data, type=SegmentMark)
    except JSON_ERRORS:
        return None
    return mark if mark.spans else None


class SegmentMissing(FileNotFoundError):
    """A segment that was marked does not exist. It has perhaps been replaced by another one."""

    def __init__(self, segment: str) -> None:
        super().__init__(f"segment {segment} is missing")
        self.segment = segment


class ColdReader:
    """Reads runs from segments. ``store`` is None in a process that has no setting `cold`.

    It keeps the marks of segments that it learns. A sequence of the stream belongs to one event forever, so a
    mark that has been removed in the meantime does no harm: either its segment still has the run, or it is missing.
    """

    def __init__(self, store: SegmentStore | None) -> None:
        self.store = store
        self._marks: dict[str, dict[str, SegmentMark]] = {}
        self._read_to: dict[str, int] = {}
        self._manifests: OrderedDict[str, dict[int, ManifestEntry]] = OrderedDict()
        self._ends: OrderedDict[str, array[int]] = OrderedDict()
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size = 0
        self._large: OrderedDict[RunLocation, list[Copied]] = OrderedDict()

    def read_to(self, tenant: str) -> int:
        """Return the sequence of the last mark of a tenant that was read, or 0."""
        return self._read_to.get(tenant, 0)

    def learn(self, tenant: str, after: int, marks: Mapping[int, SegmentMark | None]) -> None:
        """Keep the marks that the stream has after a sequence, by their sequences."""
        if self.read_to(tenant) < after:
            return  # Another task has learned all marks again, before the last of these. They are read again.
        known = self._marks.setdefault(tenant, {})
        known |= {mark.segment: mark for mark in marks.values() if mark is not None}
        for mark in marks.values():
            for replaced in mark.replaces if mark is not None else ():
                known.pop(replaced, None)
        self._read_to[tenant] = max([self.read_to(tenant), *marks])

    def learn_all(self, tenant: str, marks: Mapping[int, SegmentMark | None]) -> None:
        """Replace all marks of a tenant by those that the stream has, by their sequences."""
        self._marks[tenant] = {mark.segment: mark for mark in marks.values() if mark is not None}
        self._read_to[tenant] = max(marks, default=0)

    async def find(self, ref: RunRef, end: int) -> RunLocation | None:
        """Return where a run is whose last event has the sequence ``end``; None if no known segment has it.

        :raises SegmentMissing: if a segment that may have it does not exist
        :raises LogUnreadable: if a segment that may have it cannot be read
        :raises NoAnswer: if the store of segments cannot be reached
        """
        failure: Exception | None = None
        for mark in self._candidates(ref.tenant, end):
            if self.store is None:
                reason = f"segment {mark.segment} of cold storage has it, and this process has no setting `cold`"
                raise LogUnreadable(ref, 0, f"run {ref.run}", reason)
            try:
                found = (await self._manifest(self.store, mark.segment)).get(end)
            except FileNotFoundError:
                failure = failure or SegmentMissing(mark.segment)
            except (SegmentDamaged, ValueError) as error:
                failure = LogUnreadable(ref, 0, f"run {ref.run}", f"it is in cold storage: {error}")
            except OSError as error:
                raise NoAnswer(f"run {ref.run} is in cold storage: {error}") from error
            else:
                if found is not None and found.ref == ref:
                    return found.place
        if failure is not None:
            raise failure
        return None

    def known_segment(self, tenant: str, end: int) -> str:
        """Return the segment that is known to have a run whose last event has this sequence; empty if none is."""
        return next((mark.segment for mark in self._candidates(tenant, end) if mark.segment in self._ends), "")

    def _candidates(self, tenant: str, end: int) -> list[SegmentMark]:
        """Return the marks of the segments that may have a run, first those that are known to have it."""
        found: list[SegmentMark] = []
        unknown: list[SegmentMark] = []
        for mark in self._marks.get(tenant, {}).values():
            if mark.may_have(end):
                ends = self._ends.get(mark.segment)
                if ends is None:
                    unknown.append(mark)
                elif (place := bisect_left(ends, end)) < len(ends) and ends[place] == end:
                    found.append(mark)
        return found + unknown

    async def _manifest(self, store: SegmentStore, segment: str) -> dict[int, ManifestEntry]:
        """Return the runs of a segment by the sequences of their last events. Raises as `read_manifest`."""
        found = self._manifests.get(segment)
        if found is None:
            found = {one.end: one for one in await read_manifest(store, segment)}
            self._manifests[segment] = found
            self._ends[segment] = array("Q", sorted(found))
            while len(self._ends) > ENDS_MAX:
                self._ends.popitem(last=False)
        self._manifests.move_to_end(segment)
        while len(self._manifests) > MANIFESTS_MAX:
            self._manifests.popitem(last=False)
        return found

    async def messages(self, ref: RunRef, place: RunLocation) -> list[Copied]:
        """Return the messages of a run: its events, and then the pieces of its large values.

        :raises SegmentMissing: if the segment does not exist any longer
        :raises LogUnreadable: if the segment cannot be read
        :raises NoAnswer: if the store of segments cannot be reached
        """
        assert self.store is not None  # It has found the place.
        if (large := self._large.get(place)) is not None:
            self._large.move_to_end(place)
            return large
        try:
            found = messages_at(place, await self._block(self.store, place))
        except FileNotFoundError as error:
            self._manifests.pop(place.segment, None)
            raise SegmentMissing(place.segment) from error
        except (SegmentDamaged, ValueError) as error:
            raise LogUnreadable(ref, 0, f"run {ref.run}", f"it is in cold storage: {error}") from error
        except OSError as error:
            raise NoAnswer(f"run {ref.run} is in cold storage: {error}") from error
        if place.size >= LARGE_BYTES:
            self._large[place] = found
            while sum(one.size for one in self._large) > LARGE_BYTES_MAX:
                self._large.popitem(last=False)
        return found

    async def _block(self, store: SegmentStore, place: RunLocation) -> bytes:
        key = place.segment, place.offset
        block = self._blocks.get(key)
        if block is None:
            block = expand(await store.read(place.segment, place.offset, place.length), place)
            self._size += len(block) - len(self._blocks.get(key, b""))
            self._blocks[key] = block
        self._blocks.move_to_end(key)
        while self._size > BLOCKS_BYTES_MAX:
            _key, dropped = self._blocks.popitem(last=False)
            self._size -= len(dropped)
        return block


class ColdRuns:
    """The runs of a stream that are in cold storage. ``store`` is None in a process that has no setting `cold`."""

    def __init__(self, stream: StoredMessages, store: SegmentStore | None) -> None:
        self._stream = stream
        self.segments = ColdReader(store)

    @property
    def store(self) -> SegmentStore | None:
        return self.segments.store

    async def run_messages(self, ref: RunRef, end: int | None = None) -> list[Copied] | None:
        """Return the messages of a run; None if it is not in cold storage.

        ``end`` is the sequence of the run's last event when it was moved; by default it is looked up in the stream.

        :raises LogUnreadable: if the segment cannot be read, and the stream does not have the run's events
        :raises NoAnswer: if no answer came
        """
        if end is not None:
            return await self._run_messages(ref, end)
        filter = self._stream.subjects.run(ref)
        first = await self._stream.next_message(filter, 1)
        if first is None:
            return None
        if is_of_type(first, RunEnd.type):
            return await self._run_messages(ref, first.sequence)
        # The stream has the events. If the run is being moved, its values may be in cold storage only.
        last = await self._stream.last_message(filter)
        if last is None or not is_of_type(last, RunEnd.type):
            return None
        try:
            return await self._run_messages(ref, last.sequence)
        except LogUnreadable:
            return None  # A segment that may have other runs only is missing or damaged.

    async def _run_messages(self, ref: RunRef, end: int) -> list[Copied] | None:
        """Return the messages of a run whose last event had the sequence ``end``; raises as `run_messages`."""
        missing, waits = "", MARK_TRIES
        while True:
            known = self.segments.read_to(ref.tenant)
            try:
                place = await self.segments.find(ref, end)
                if place is not None:
                    return await self.segments.messages(ref, place)
                await self._read_new_marks(ref.tenant)
                if self.segments.read_to(ref.tenant) == known:
                    # A replica may have removed the events of a run, and another one may not have the mark yet.
                    newest = await self._stream.last_message(self._stream.subjects.segment_marks(ref.tenant))
                    waits -= 1
                    if newest is None or newest.sequence <= known or not waits:
                        return None
                    await anyio.sleep(MARK_RETRY_S)
            except SegmentMissing as error:
                if error.segment == missing:
                    raise LogUnreadable(ref, 0, f"run {ref.run}", f"it is in cold storage, and {error}") from error
                # Another segment has replaced it since its mark was read.
                missing = error.segment
                await self._read_all_marks(ref.tenant)

    async def events(self, ref: RunRef, end: int | None, ring: KeyRing) -> list[Recorded] | None:
        """Return the own events of a run. Errors and ``end`` are those of `run_messages`."""
        messages = await self.run_messages(ref, end)
        return await self._decode_events(ref, messages, ring) if messages is not None else None

    async def events_of(self, ends: Mapping[RunRef, int], ring: KeyRing) -> dict[RunRef, list[Recorded]]:
        """Return the own events of runs, by the sequences of the runs' last events.

        Runs that are not there, or cannot be read, are left out: for one run, `events` raises the reason.

        :raises NoAnswer: if no answer came
        """
        found: dict[RunRef, list[Recorded]] = {}
        # Marks are read once for all runs. If segments have been replaced since, they are read once more.
        for read_marks in (self._read_new_marks, self._read_all_marks):
            for tenant in {ref.tenant for ref in ends}:
                await read_marks(tenant)
            missing: dict[RunRef, int] = {}
            # Runs of one segment together, so that its manifest is read once.
            for ref, end in sorted(
                ends.items(), key=lambda one: (self.segments.known_segment(one[0].tenant, one[1]), one[1])
            ):
                try:
                    if (place := await self.segments.find(ref, end)) is not None:
                        found[ref] = await self._decode_events(ref, await self.segments.messages(ref, place), ring)
                except SegmentMissing:
                    missing[ref] = end
                except LogUnreadable:
                    continue
            ends = missing
        return found

    async def _decode_events(self, ref: RunRef, messages: Sequence[Copied], ring: KeyRing) -> list[Recorded]:
        found: list[Recorded] = []
        for one in messages:
            if one.subject.startswith(f"{self._stream.subjects.prefix}.run."):
                item = decode_recorded(one.subject, one.sequence, ref, one.headers.get(MARK, ""), one.data)
                found.append(await decrypt_event(ring, item) if item.encrypted else item)
        return found

    async def _read_new_marks(self, tenant: str) -> None:
        """Read the marks of segments that were stored since the last call."""
        after = self.segments.read_to(tenant)
        self.segments.learn(tenant, after, await self._marks_after(tenant, after))

    async def _read_all_marks(self, tenant: str) -> None:
        """Read the marks of all segments, and forget those that the stream does not have any longer."""
        self.segments.learn_all(tenant, await self._marks_after(tenant, 0))

    async def _marks_after(self, tenant: str, after: int) -> dict[int, SegmentMark | None]:
        """Return the marks of segments that were stored after a sequence, by their sequences."""
        stored = self._stream.copy_messages(self._stream.subjects.segment_marks(tenant), after=after)
        return {one.sequence: decode_segment_mark(one.data) async for one in stored}


def moved_end(items: Sequence[Recorded], after: int) -> int | None:
    """Return the sequence of a run's end, if events before it may be missing because they are in cold storage.

    ``items`` are the events that the stream has after the sequence ``after``. If the end is the first of them, and
    ``after`` is not 0, the stream may have the events before it.
    """
    before = 0
    for item in items:
        if item.event.type == RunEnd.type and item.event.n != before + 1:
            return item.sequence
        before = item.event.n
    return None


def value_of(messages: Sequence[Copied], digest: str) -> bytes | None:
    """Return a large value from the messages of a run; None if it is not there."""
    pieces: dict[int, Copied] = {}
    for one in messages:
        *_, found, number = one.subject.split(".")
        if found == digest and number.isdecimal():
            pieces.setdefault(int(number), one)
    if 0 not in pieces:
        return None
    count = int(pieces[0].headers.get(COUNT, "1"))
    return b"".join(pieces[i].data for i in range(count)) if all(i in pieces for i in range(count)) else None
