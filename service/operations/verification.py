"""Verifies a store: reads every message, and checks each run for lost or damaged data."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from hashlib import sha256

import msgspec
from msgspec import Struct, field

from callboard.bus.errors import LogUnreadable
from callboard.bus.events import Event, ForkedFrom, RunAccepted, RunEnd
from callboard.bus.log.damage import MissingEvents, UnreadableEvent, describe_missing
from callboard.bus.log.recorded import as_recorded, decode_recorded, is_lost
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.nats.stream import lost_bytes
from callboard.bus.subjects import RunRef


class Damage(Struct, frozen=True):
    """The damage of a run: ``found`` has one sentence per finding, ``ended`` says whether the run has ended."""

    run: str
    definition: str
    ended: bool
    found: list[str]


class StoreReport(Struct, frozen=True):
    """The result of a verification. ``lost_bytes`` is the number of bytes that the server dropped when it started."""

    runs: int
    messages: int
    damaged: list[Damage]
    lost_bytes: int = 0

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.lost_bytes


class _Accepted(Struct, frozen=True):
    forked_from: ForkedFrom | None = None


class _Seen(Struct):
    """The state of the verification of one run."""

    definition: str = ""
    ended: bool = False
    shared: int = 0
    missing: MissingEvents = field(default_factory=MissingEvents)
    unreadable: list[str] = field(default_factory=list[str])
    blobs: dict[str, int] = field(default_factory=dict[str, int])


async def verify_store(log: JetStreamLog, tenant: str, *, values: bool) -> StoreReport:
    """Read every event of a tenant's runs, and with ``values`` every large value, and report the damage.

    :raises NoAnswer: if the log does not answer
    """
    lost = await lost_bytes(log.requests, log.stream)
    runs: dict[str, _Seen] = {}
    messages = 0
    async with aclosing(log.copy_messages(log.subjects.events(tenant))) as stream:
        async for message in stream:
            _take(runs, log, message)
            messages += 1
    damaged = [damage async for damage in _find_damage(log, tenant, runs, values=values)]
    return StoreReport(len(runs), messages, damaged, lost)


def _take(runs: dict[str, _Seen], log: JetStreamLog, message: Copied) -> None:
    ref = log.subjects.parse_event(message.subject).ref
    seen = runs.setdefault(ref.run, _Seen())
    mark = message.headers.get(MARK, "")
    event = as_recorded(decode_recorded(message.subject, message.sequence, ref, mark, message.data))
    if not event.n:
        reason = msgspec.json.decode(event.payload, type=UnreadableEvent).reason
        seen.unreadable.append(f"message {message.sequence} is not a valid event: {reason}")
        return
    seen.definition = seen.definition or event.definition
    if event.type == RunAccepted.type:
        forked = _read_fork(event)
        seen.shared = forked.n if forked is not None else 0
        seen.missing.apply(event)
        seen.missing.skip(seen.shared)
    else:
        seen.missing.apply(event)
    seen.ended = event.type == RunEnd.type
    for digest in event.blobs:
        seen.blobs.setdefault(digest, event.n)


def _read_fork(event: Event) -> ForkedFrom | None:
    try:
        return msgspec.json.decode(event.payload, type=_Accepted).forked_from
    except msgspec.ValidationError:
        return None  # The member is stored apart from the event, and checked with the large values.


async def _find_damage(
    log: JetStreamLog, tenant: str, runs: Mapping[str, _Seen], *, values: bool
) -> AsyncGenerator[Damage]:
    for run, seen in runs.items():
        ref = RunRef(tenant, run)
        found = await _missing(log, ref, seen)
        found += seen.unreadable
        if not seen.ended:
            last = await log.last(ref)
            if is_lost(last):
                found.append("the last event is damaged")
        if values:
            found += [text async for text in _lost_values(log, ref, seen)]
        if found:
            yield Damage(run, seen.definition, seen.ended, found)


async def _missing(log: JetStreamLog, ref: RunRef, seen: _Seen) -> list[str]:
    """Return which events of a run are missing. Those in cold storage are read from there."""
    if not seen.missing.numbers:
        return []
    try:
        cold = await log.cold_events(ref) if seen.ended else None
    except LogUnreadable as error:
        return [error.message]
    if cold is None:
        return [describe_missing(seen.missing.numbers)]
    for item in cold:
        for digest in item.event.blobs:
            seen.blobs.setdefault(digest, item.event.n)
    return []


async def _lost_values(log: JetStreamLog, ref: RunRef, seen: _Seen) -> AsyncGenerator[str]:
    for digest, n in seen.blobs.items():
        try:
            data = await log.stored_blob(ref, digest)
        except KeyError:
            yield f"large value {digest[:12]} of event {n} is missing"
            continue
        if sha256(data).hexdigest() != digest:
            yield f"large value {digest[:12]} of event {n} is damaged"
