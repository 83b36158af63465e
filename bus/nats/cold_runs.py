"""Runs in cold storage, as readers of the log see them.

The stream keeps the last event of such a run, so that its id stays in use and the run has a last event, and a mark with
the place of all its events and large values. A reader that finds events missing in the stream looks for the mark.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from callboard.bus.errors import LogUnreadable
from callboard.bus.events import RunEnd
from callboard.bus.log.port import NoAnswer, Recorded
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.copied import Copied
from callboard.bus.nats.segments import Place, SegmentDamaged, SegmentStore, expand, messages_at
from callboard.bus.subjects import RunRef
from callboard.lib.json_errors import JSON_ERRORS

BLOCKS_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of expanded blocks in memory. Runs of one time are in one block, and are often read together."""


class ColdReader:
    """Reads runs from segments. ``store`` is None in a process that has no setting `cold`."""

    def __init__(self, store: SegmentStore | None) -> None:
        self.store = store
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size = 0

    async def messages(self, ref: RunRef, place: Place) -> list[Copied]:
        """Return the messages of a run: its events, and then the pieces of its large values.

        :raises LogUnreadable: if the segment cannot be read
        :raises FileNotFoundError: if the segment does not exist any longer; the run may have another place
        :raises NoAnswer: if the store of segments cannot be reached
        """
        if self.store is None:
            reason = f"it is in cold storage, segment {place.segment}, and this process has no setting `cold`"
            raise LogUnreadable(ref, 0, f"run {ref.run}", reason)
        try:
            return messages_at(place, await self._block(self.store, place))
        except (SegmentDamaged, ValueError) as error:
            raise LogUnreadable(ref, 0, f"run {ref.run}", f"it is in cold storage: {error}") from error
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NoAnswer(f"run {ref.run} is in cold storage: {error}") from error

    async def _block(self, store: SegmentStore, place: Place) -> bytes:
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


def decode_place(data: bytes) -> Place | None:
    """Decode a mark; None if it is invalid."""
    try:
        return msgspec.json.decode(data, type=Place)
    except JSON_ERRORS:
        return None


def may_be_cold(items: Sequence[Recorded], after: int) -> bool:
    """Return whether events of a run may be missing in the stream because they are in cold storage.

    ``items`` are those that the stream has after the sequence ``after``.
    """
    before = 0
    for item in items:
        if item.event.n != before + 1 and (before or not after):
            return True
        before = item.event.n
    return bool(after and items and items[-1].event.type == RunEnd.type)


def replaces(cold: Sequence[Recorded] | None, items: Sequence[Recorded]) -> bool:
    """Return whether the events in cold storage are those of which the stream has only the last one."""
    return bool(cold) and any(item.sequence == cold[-1].sequence for item in items)


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
