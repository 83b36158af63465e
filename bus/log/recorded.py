"""Recorded events: the messages of a run as they are read from the log, decoded and decrypted, or unreadable."""

import datetime as dt
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callboard.bus.errors import KeyMissing, LogNewer, LogUnreadable
from callboard.bus.events import (
    NEWER,
    SCHEMA_VERSION,
    TYPES,
    Event,
    Newer,
    RunClaimed,
    decode_event,
    decode_payload,
    encode_event,
    payload_of,
)
from callboard.bus.log.damage import UNREADABLE, UnreadableEvent
from callboard.bus.log.encryption import Key, KeyRing, Lack, Undecipherable, is_encrypted, key_of
from callboard.bus.log.private_logging import omit_content
from callboard.bus.subjects import RunRef
from callboard.lib.installed import own_version
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)


class Recorded(Struct, frozen=True):
    """An event as it was read from the log. ``data`` are the appended bytes; for an event that a fork shares with its
    origin, they contain the fork's run id.

    ``key`` is the key that the event was decrypted with. ``encrypted`` means that it is not decrypted, because the
    reader has no key or did not ask for it. ``missing`` means that the key is not available, but was not destroyed.
    ``moved`` means that the event has an earlier time than its bytes, like a fork's first event before the shared ones.

    Clients that may publish to a run's subjects can store anything there. A message that is not an event has the type
    `UNREADABLE`, the number 0 and an `UnreadableEvent` as its payload, so that readers of many runs can skip it. An
    event whose payload does not fit its type was recorded by another version: it has the type `NEWER` and a `Newer` as
    its payload, and readers skip it like an event of an unknown type.
    """

    sequence: int
    ref: RunRef
    id: str
    data: bytes
    event: Event
    key: Key | None = None
    encrypted: bool = False
    missing: bool = False
    moved: bool = False

    @property
    def public_form(self) -> bytes:
        """The encoded form of ``event``."""
        return encode_event(self.event) if self.key is not None or self.moved else self.data

    @property
    def readable(self) -> bool:
        return self.event.type != UNREADABLE


def decode_recorded(subject: str, sequence: int, ref: RunRef, id: str, data: bytes) -> Recorded:
    """Decode a message from the subjects of a run's events."""
    try:
        event = decode_event(data)
        if not event.blobs:
            # A payload with large values is checked later, when they are put back in.
            event = replace_unknown(event, id)
    except JSON_ERRORS as error:
        event = _unreadable(subject, sequence, ref, str(error))
    return Recorded(sequence, ref, id, data, event, encrypted=is_encrypted(event.payload))


def as_recorded(item: Recorded) -> Event:
    """Return an event with its recorded type and payload, also if only a newer version knows the payload."""
    return decode_event(item.data) if item.event.type == NEWER else item.event


async def decrypt_event(keys: KeyRing, item: Recorded) -> Recorded:
    """Decrypt an event. Return it unchanged if the key is not available.

    :raises NoAnswer: if no answer came
    """
    event = item.event
    omit_content()
    try:
        key = await keys.get(item.ref.tenant, key_of(event.payload))
        if isinstance(key, Lack):
            return replace(item, missing=key is Lack.MISSING)
        payload = Raw(key.decrypted_payload(event.type, event.n, bytes(event.payload)))
        decrypted = msgspec.structs.replace(event, payload=payload)
        if not event.blobs:
            decrypted = replace_unknown(decrypted, item.id)
    except (*JSON_ERRORS, Undecipherable) as error:
        event = _unreadable(event.type, item.sequence, item.ref, str(error))
        return replace(item, event=event, encrypted=False)
    return replace(item, event=decrypted, key=key, encrypted=False)


def replace_unknown(event: Event, id: str) -> Event:
    """Return an event, or the one that represents it if this version does not know a value in it.

    Only writers of events mark them with an ``id``. A message without one is not an event if its payload is malformed.

    :raises msgspec.DecodeError: if the payload is malformed
    """
    if event.type in TYPES:
        try:
            decode_payload(event.type, event.payload)
        except msgspec.ValidationError as error:
            if not id:
                raise
            payload = msgspec.json.encode(Newer(event.type, str(error)))
            return msgspec.structs.replace(event, type=NEWER, payload=Raw(payload))
    return event


def _unreadable(subject: str, sequence: int, ref: RunRef, reason: str, n: int = 0) -> Event:
    """Make the event that represents an unreadable one. ``n`` is its number, 0 if that is unknown."""
    payload = msgspec.json.encode(UnreadableEvent(sequence, subject, reason))
    return Event(
        type=UNREADABLE,
        run=ref.run,
        n=n,
        epoch=0,
        v=SCHEMA_VERSION,
        time=_NEVER,
        path="",
        payload=msgspec.Raw(payload),
    )


def lost_last(ref: RunRef, n: int = 0, sequence: int = 0) -> Recorded:
    """Make the item that represents a run's damaged last event.

    The server returns the events before it, but no last one. The sequence is 0 by default, because the server compares
    a guard with 0 in that state.
    """
    reason = "the message of the run's last event is damaged, and the server cannot read it"
    event = _unreadable(f"the last event of run {ref.run}", sequence, ref, reason, n)
    return Recorded(sequence, ref, "", b"", event)


def is_lost(last: Recorded | None) -> bool:
    """Return whether a run's last event is damaged, given what ``LogReader.last`` returned."""
    return last is not None and not last.readable and last.sequence == 0


def guard_of(items: Sequence[Recorded], last: Recorded | None) -> int:
    """Return the sequence for the guard of the next event, given all messages of a run, and the last one as the leader
    has it."""
    if is_lost(last):
        return 0
    return max(item.sequence for item in items)


def readable(items: Sequence[Recorded]) -> Sequence[Recorded]:
    """Return a run's events if all messages are events, beginning with the first one and without a gap.

    :raises LogUnreadable: names the first message that is not an event, or that follows a gap
    :raises LogNewer: names the first event that this version does not know
    :raises KeyMissing: if they are encrypted, and the key is currently not available
    """
    before = 0
    for item in items:
        if item.event.type not in TYPES and item.readable:
            raise _newer_error(item, items)
        if not item.readable:
            raise unreadable(item)
        if item.encrypted:
            raise _locked_error(item)
        if item.event.n != before + 1:
            subject = f"{item.event.type} of run {item.ref.run}"
            reason = f"it is number {item.event.n}, after " + (f"number {before}" if before else "none")
            raise LogUnreadable(item.ref, item.sequence, subject, reason)
        before = item.event.n
    return items


def _newer_error(item: Recorded, items: Sequence[Recorded]) -> LogNewer:
    """Return the error for an event that this version does not know, among all events of its run."""
    event = item.event
    payload = payload_of(event) if event.type == NEWER else None
    found = payload if isinstance(payload, Newer) else Newer(event.type, "an unknown type of event")
    claims = [payload_of(one.event) for one in items if one.event.type == RunClaimed.type and one.ref == item.ref]
    by = next((one for one in claims if isinstance(one, RunClaimed) and one.epoch == event.epoch), None)
    version = by.version if by is not None else ""
    return LogNewer(item.ref, event.n, found.type, found.reason, version=version, own=own_version())


def _locked_error(item: Recorded) -> KeyMissing | LogUnreadable:
    """Return the error for an event that could not be decrypted."""
    key = key_of(item.event.payload)
    if item.missing:
        return KeyMissing(item.ref, key)
    reason = f"it is encrypted with the key {key!r}, which was destroyed, or is not available to this reader"
    return LogUnreadable(item.ref, item.sequence, f"{item.event.type} of run {item.ref.run}", reason)


def unreadable(item: Recorded) -> LogUnreadable:
    """Return the error for an unreadable message."""
    found = decode_json(item.event.payload, type=UnreadableEvent)
    return LogUnreadable(item.ref, found.sequence, found.subject, found.reason)


def within(items: list[Recorded], bytes_max: int | None) -> list[Recorded]:
    """Return the first items, up to and including the one with which they reach ``bytes_max`` bytes."""
    size = 0
    for place, item in enumerate(items, 1):
        size += len(item.data)
        if is_full(size, bytes_max):
            return items[:place]
    return items


def is_full(size: int, bytes_max: int | None) -> bool:
    """Return whether events of ``size`` bytes reach the limit of one read."""
    return bytes_max is not None and size >= bytes_max
