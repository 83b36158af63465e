"""Forks: runs that go on from where another was. What they have in common stands in the log once, at their origin.

Whoever reads a fork reads its own first event, then those of its origin up to the parting, then what it did itself.
Stream sequences tell the place in that order as well: all of the origin's are smaller than those of the fork.
"""

from collections.abc import Sequence
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from callboard.bus.decoding import decode_json
from callboard.bus.events import Event, ForkedFrom, encode_event
from callboard.bus.log import Behind, Reading, Recorded, is_full, whole
from callboard.bus.subjects import RunRef

_underway: ContextVar[tuple[RunRef, ...]] = ContextVar("forks", default=())
"""Forks that are being read, each for the one before it."""


class _Born(msgspec.Struct):
    """The member of ``run.accepted`` that is decoded here."""

    forked_from: ForkedFrom | None = None


def origin_of(first: Event) -> ForkedFrom | None:
    """Whose fork a run is, by its first event.

    :raises msgspec.ValidationError: if a member that this needs is stored beside the event
    """
    # Decoded only where there is any hope: every run that is read comes by here, and few are forks.
    payload = bytes(first.payload)
    return decode_json(payload, type=_Born).forked_from if b'"forked_from"' in payload else None


async def with_origin(
    log: Reading, ref: RunRef, own: list[Recorded], after: int, limit: int | None, bytes_max: int | None = None
) -> list[Recorded]:
    """Put what a fork has of its origin between its first event and the rest of its own; ``own`` were read behind the
    sequence ``after``, at most so many.

    Behind the first event itself the rest is told: what stands between is read from the beginning on.

    :raises NoAnswer: if no answer came
    """
    first = own[0] if own else None
    if first is None or first.event.n != 1:
        return own
    try:
        forked = origin_of(first.event)
    except msgspec.ValidationError:
        forked = origin_of(await whole(log, first))
    if forked is None or (len(own) > 1 and own[1].event.n <= forked.n):
        return own  # of a fork, in a file, all stands together
    # Whoever has read some of the origin's events has had the first one, whose sequence is larger.
    if limit == 1 and not after:
        return [await _alone(log, ref, first, forked)]
    shared = await prefix(log, ref, forked, after, limit if after or limit is None else limit - 1, bytes_max)
    begun = [] if after else [_before(first, shared)]
    # Where that is not all of it yet, the rest comes before what the fork did itself.
    whole_prefix = not shared or shared[-1].event.n == forked.n
    found = [*begun, *shared, *(own[1:] if whole_prefix else [])][:limit]
    if found and limit is not None and whole_prefix and len(found) < limit <= len(own):
        # One of those that were read is the first event, which has been told: there may be more, and fewer are the end.
        found += await log.read(ref, own[-1].sequence, limit - len(found), bytes_max)
    # Nothing else was read at once than the first event, which has been told.
    return found or await log.read(ref, first.sequence, limit, bytes_max)


async def prefix(
    log: Reading,
    ref: RunRef,
    forked: ForkedFrom,
    after: int = 0,
    limit: int | None = None,
    bytes_max: int | None = None,
) -> list[Recorded]:
    """Return what a fork has of its origin, as events of the fork; their large values stand at the origin.

    :raises Behind: if not all of it is there
    :raises NoAnswer: if no answer came
    """
    origin = RunRef(ref.tenant, forked.run)
    if origin in (ref, *_underway.get()):
        raise Behind(f"run {ref.run} is said to go on from itself")
    begun = _underway.set((*_underway.get(), ref))
    try:
        return await _read_prefix(log, ref, forked, origin, after, limit, bytes_max)
    finally:
        _underway.reset(begun)


async def _read_prefix(
    log: Reading, ref: RunRef, forked: ForkedFrom, origin: RunRef, after: int, limit: int | None, bytes_max: int | None
) -> list[Recorded]:
    most = forked.n if limit is None else min(limit + 1, forked.n)  # the origin's first event is not among them
    behind, cut, shared = after, True, list[Recorded]()
    while cut and not shared:
        found = await log.read(origin, behind, most, bytes_max)
        shared = [_shared(ref, item, forked) for item in found if 1 < item.event.n <= forked.n]
        cut = is_full(sum(len(item.data) for item in found), bytes_max)
        behind = found[-1].sequence if found else behind
    to_the_end = not cut and (limit is None or len(shared) < limit)
    if to_the_end and forked.n > 1 and not after and (not shared or shared[-1].event.n < forked.n):
        # A replica lags, or somebody has removed the origin: the fork must not go on from anywhere else.
        raise Behind(f"run {forked.run} is not there up to event {forked.n}")
    return shared[:limit]


async def _alone(log: Reading, ref: RunRef, first: Recorded, forked: ForkedFrom) -> Recorded:
    """A fork's first event, if nothing else is wanted, as it is told with the others; if these are there."""
    try:
        return _before(first, await prefix(log, ref, forked, limit=1))
    except Behind:
        return first


def _before(first: Recorded, shared: Sequence[Recorded]) -> Recorded:
    """A fork's first event, with a time that is not behind those of what it has of its origin."""
    event = begun_before([first.event, *(item.event for item in shared[:1])])
    return first if event is first.event else replace(first, event=event, moved=True)


def begun_before(events: Sequence[Event]) -> Event:
    """The first event of a run, with a time that is not behind that of the second, as a fork's own would be."""
    first, *second = events[:2]
    time = min([first.time, *(event.time for event in second)])
    return first if time == first.time else replace(first, time=time)


def _shared(ref: RunRef, item: Recorded, forked: ForkedFrom) -> Recorded:
    """An event of the origin, and the bytes that tell it, as the fork has them; it stands at the origin."""
    event = _as_of(ref, item.event, forked)
    return replace(item, event=event, data=encode_event(event))


def _as_of(ref: RunRef, event: Event, forked: ForkedFrom) -> Event:
    """An event of the origin as the fork has it."""
    members = forked.replaced.get(event.n)
    if members is None:
        return msgspec.structs.replace(event, run=ref.run)
    payload = {**decode_json(event.payload), **members}
    return msgspec.structs.replace(event, run=ref.run, payload=msgspec.Raw(msgspec.json.encode(payload)))
