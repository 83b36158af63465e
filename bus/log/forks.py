"""Forks: runs that continue from an earlier state of another run, their origin.

The log stores the shared events once, at the origin. A reader of a fork gets the fork's first event, then the origin's
events up to the point of the fork, then the fork's other events. Each stream sequence after the first event is larger
than the one before, because the origin's shared events are older than the fork.
"""

from collections.abc import Sequence
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from callboard.bus.events import Event, ForkedFrom, encode_event
from callboard.bus.log.port import Behind, LogReader, whole
from callboard.bus.log.recorded import Recorded, is_full
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json

_underway: ContextVar[tuple[RunRef, ...]] = ContextVar("forks", default=())
"""Forks that are currently being read; each was started by the one before it, whose origin it is."""


class _Born(msgspec.Struct):
    """The only member of ``run.accepted`` that this module decodes."""

    forked_from: ForkedFrom | None = None


def origin_of(first: Event) -> ForkedFrom | None:
    """Return the origin of a run from its first event; None if the run is not a fork.

    :raises msgspec.ValidationError: if a member that this needs is stored separately from the event
    """
    # Every read of a run calls this, and few runs are forks. So a payload is decoded only if it may contain an origin.
    payload = bytes(first.payload)
    return decode_json(payload, type=_Born).forked_from if b'"forked_from"' in payload else None


async def with_origin(
    log: LogReader, ref: RunRef, own: list[Recorded], after: int, limit: int | None, bytes_max: int | None = None
) -> list[Recorded]:
    """Insert the events that a fork shares with its origin between the fork's first event and its other events.

    ``own`` are the run's own events after the sequence ``after``, at most ``limit``. The shared events have smaller
    sequences than the fork's first event. So a reader that passes the first event's sequence as ``after`` gets the
    fork's other events; the shared ones are read from the beginning of the run.

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
        return own  # in a file, a fork's log contains the shared events
    # With ``after`` set, the reader already has the fork's first event, whose sequence is larger than those it shares.
    if limit == 1 and not after:
        return [await _first_event_alone(log, ref, first, forked)]
    shared = await prefix(log, ref, forked, after, limit if after or limit is None else limit - 1, bytes_max)
    begun = [] if after else [_before(first, shared)]
    # If some shared events are still missing, they come before the fork's other events.
    whole_prefix = not shared or shared[-1].event.n == forked.n
    found = [*begun, *shared, *(own[1:] if whole_prefix else [])][:limit]
    if found and limit is not None and whole_prefix and len(found) < limit <= len(own):
        # ``own`` contains the first event, which the reader already has. There may be more events, and fewer than
        # ``limit`` would mean the end.
        found += await log.read(ref, own[-1].sequence, limit - len(found), bytes_max)
    # If nothing was found, ``own`` contained only the first event, which the reader already has.
    return found or await log.read(ref, first.sequence, limit, bytes_max)


async def prefix(
    log: LogReader,
    ref: RunRef,
    forked: ForkedFrom,
    after: int = 0,
    limit: int | None = None,
    bytes_max: int | None = None,
) -> list[Recorded]:
    """Return the events that a fork shares with its origin, as events of the fork.

    Their large values are stored at the origin.

    :raises Behind: if some of these events are missing
    :raises NoAnswer: if no answer came
    """
    origin = RunRef(ref.tenant, forked.run)
    if origin in (ref, *_underway.get()):
        raise Behind(f"run {ref.run} is recorded as a fork of itself")
    begun = _underway.set((*_underway.get(), ref))
    try:
        return await _read_prefix(log, ref, forked, origin, after, limit, bytes_max)
    finally:
        _underway.reset(begun)


async def _read_prefix(
    log: LogReader,
    ref: RunRef,
    forked: ForkedFrom,
    origin: RunRef,
    after: int,
    limit: int | None,
    bytes_max: int | None,
) -> list[Recorded]:
    most = forked.n if limit is None else min(limit + 1, forked.n)  # the origin's first event is not among them
    behind, cut, shared = after, True, list[Recorded]()
    while cut and not shared:
        found = await log.read(origin, behind, most, bytes_max)
        shared = [_share(ref, item, forked) for item in found if 1 < item.event.n <= forked.n]
        cut = is_full(sum(len(item.data) for item in found), bytes_max)
        behind = found[-1].sequence if found else behind
    to_the_end = not cut and (limit is None or len(shared) < limit)
    if to_the_end and forked.n > 1 and not after and (not shared or shared[-1].event.n < forked.n):
        # A replica lags, or the origin was removed. The fork must not continue from another state.
        raise Behind(f"the log does not contain run {forked.run} up to event {forked.n}")
    return shared[:limit]


async def _first_event_alone(log: LogReader, ref: RunRef, first: Recorded, forked: ForkedFrom) -> Recorded:
    """Return a fork's first event, if only that is requested, with the time that it has when more events are read."""
    try:
        return _before(first, await prefix(log, ref, forked, limit=1))
    except Behind:
        return first


def _before(first: Recorded, shared: Sequence[Recorded]) -> Recorded:
    """Return a fork's first event, with a time that is not later than that of the first shared event.

    It was recorded later than the events that the fork shares with its origin.
    """
    if not shared or first.event.time <= shared[0].event.time:
        return first
    return replace(first, event=replace(first.event, time=shared[0].event.time), moved=True)


def _share(ref: RunRef, item: Recorded, forked: ForkedFrom) -> Recorded:
    """Return an event of the origin as the fork has it, with its encoded form. Its sequence is that at the origin."""
    event = _as_of(ref, item.event, forked)
    return replace(item, event=event, data=encode_event(event))


def _as_of(ref: RunRef, event: Event, forked: ForkedFrom) -> Event:
    """Return an event of the origin with the fork's run id and replaced members."""
    members = forked.replaced.get(event.n)
    if members is None:
        return msgspec.structs.replace(event, run=ref.run)
    payload = {**decode_json(event.payload), **members}
    return msgspec.structs.replace(event, run=ref.run, payload=msgspec.Raw(msgspec.json.encode(payload)))
