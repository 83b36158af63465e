"""The event log: the port that every implementation keeps, and the one function that appends to a run.

An append says which event it follows: it carries the stream sequence of the run's previous event (0 for the first), and
the log refuses it if anything else has been appended meanwhile. So a run has one writer at a time, whoever believes to
be it, and event n+1 cannot exist without event n.
"""

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callboard.bus import payloads
from callboard.bus.backoff import backoff_s
from callboard.bus.damage import UNREADABLE, Unreadable
from callboard.bus.decoding import decode_json
from callboard.bus.discretion import be_discreet
from callboard.bus.encryption import Key, KeyRing, Lack, Undecipherable, is_encrypted, key_of
from callboard.bus.errors import KeyMissing, LogUnavailable, LogUnreadable, RunLost, StoreFull
from callboard.bus.events import SCHEMA_VERSION, TYPES, Event, decode_event, decode_payload, encode_event
from callboard.bus.json_errors import JSON_ERRORS
from callboard.bus.subjects import RunRef

APPEND_PATIENCE_S = 60.0
"""How long an append is repeated while the log does not answer; a leader's election takes up to 10 s."""

ROOM_PATIENCE_S = 24 * 3600.0
"""How long an append waits for room in a store that is full: somebody has to make some, and what has been done outside
meanwhile would have to be done again."""

RETRY_PAUSE_S = 0.1
"""First pause between two tries of an append; doubled up to `RETRY_PAUSE_MAX_S`."""

RETRY_PAUSE_MAX_S = 2.0


class Entry(msgspec.Struct, frozen=True):
    """An encoded event on its way into the log. ``id`` is the writer's own mark, unlike any other entry's."""

    n: int
    epoch: int
    type: str
    definition: str
    id: str
    data: bytes


_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)


class Recorded(Struct, frozen=True):
    """An event as the log holds it. ``data`` are the bytes that were appended, of a fork's origin with the fork's name.

    ``key`` is what it was decrypted with; where it is ``encrypted`` it still is, for lack of the key or of the wish;
    ``missing`` says that the key was not there, and may yet be: nobody has destroyed it. ``moved`` says that the event
    has an earlier time than its bytes, as the first one of a fork before those of its origin.

    Whoever may publish to a run's subjects may leave anything there: what is no event has the type `UNREADABLE`, the
    number 0 and an `Unreadable` as its payload, so that whoever reads many runs can pass it over.
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
    def told(self) -> bytes:
        """The bytes that tell the event as it is read here."""
        return encode_event(self.event) if self.key is not None or self.moved else self.data

    @property
    def readable(self) -> bool:
        return self.event.type != UNREADABLE


def recorded(subject: str, sequence: int, ref: RunRef, id: str, data: bytes) -> Recorded:
    """Read a message that stands among a run's events."""
    try:
        event = decode_event(data)
        if not event.blobs and event.type in TYPES:
            # What lacks a value that travels beside it is looked at when that is put back in.
            decode_payload(event.type, event.payload)
    except JSON_ERRORS as error:
        event = _unreadable(subject, sequence, ref, str(error))
    return Recorded(sequence, ref, id, data, event, encrypted=is_encrypted(event.payload))


async def decrypted(keys: KeyRing, item: Recorded) -> Recorded:
    """Return an encrypted event as it was before, or as it is where there is no key.

    :raises NoAnswer: if no answer came
    """
    event = item.event
    be_discreet()
    try:
        key = await keys.get(item.ref.tenant, key_of(event.payload))
        if isinstance(key, Lack):
            return replace(item, missing=key is Lack.MISSING)
        payload = Raw(key.decrypted_payload(event.type, event.n, bytes(event.payload)))
        if not event.blobs and event.type in TYPES:
            decode_payload(event.type, payload)
    except (*JSON_ERRORS, Undecipherable) as error:
        event = _unreadable(event.type, item.sequence, item.ref, str(error))
        return replace(item, event=event, encrypted=False)
    return replace(item, event=msgspec.structs.replace(event, payload=payload), key=key, encrypted=False)


def _unreadable(subject: str, sequence: int, ref: RunRef, reason: str, n: int = 0) -> Event:
    """Make the event that represents an unreadable one. ``n`` is its number, 0 if that is unknown."""
    payload = msgspec.json.encode(Unreadable(sequence, subject, reason))
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

    The server returns the events before it, and reports that there is no last one. The sequence is 0 by default,
    because the server compares a guard with 0 in that state.
    """
    reason = "the message of the run's last event is damaged, and the server cannot read it"
    event = _unreadable(f"the last event of run {ref.run}", sequence, ref, reason, n)
    return Recorded(sequence, ref, "", b"", event)


def is_lost(last: Recorded | None) -> bool:
    """Return whether a run's last event is damaged, given what ``EventLog.last`` returned."""
    return last is not None and not last.readable and last.sequence == 0


def guard_of(items: Sequence[Recorded], last: Recorded | None) -> int:
    """Return the sequence that the server compares the guard of the next event with, given all messages of a run and
    the last one as the leader has it."""
    if is_lost(last):
        return 0
    return max(item.sequence for item in items)


def readable(items: Sequence[Recorded]) -> Sequence[Recorded]:
    """Return a run's events if all that was read are such, from the first one on and without a gap between them.

    :raises LogUnreadable: names the first message that is none
    :raises KeyMissing: if they are encrypted, and the key is not there just now
    """
    before = 0
    for item in items:
        if not item.readable:
            raise unreadable(item)
        if item.encrypted:
            raise _locked(item)
        if item.event.n != before + 1:
            subject = f"{item.event.type} of run {item.ref.run}"
            reason = f"it is number {item.event.n}, after " + (f"number {before}" if before else "none")
            raise LogUnreadable(item.ref, item.sequence, subject, reason)
        before = item.event.n
    return items


def _locked(item: Recorded) -> KeyMissing | LogUnreadable:
    """The error that an event amounts to which is encrypted still."""
    key = key_of(item.event.payload)
    if item.missing:
        return KeyMissing(item.ref, key)
    reason = f"it is encrypted with the key {key!r}, which has been forgotten, or is not at hand"
    return LogUnreadable(item.ref, item.sequence, f"{item.event.type} of run {item.ref.run}", reason)


def unreadable(item: Recorded) -> LogUnreadable:
    """The error that an unreadable message amounts to."""
    found = decode_json(item.event.payload, type=Unreadable)
    return LogUnreadable(item.ref, found.sequence, found.subject, found.reason)


class Alarm(Struct, frozen=True):
    """The alarm clock of a parked run: set together with an event, fired as a command."""

    due: dt.datetime
    partition: int


class RunMessage(Struct, frozen=True):
    """A command of one run to another, set down together with the event that it follows from."""

    to: RunRef
    verb: str
    body: bytes


class Shares(Struct, frozen=True):
    """A note that a run goes on from another one, let in only as long as that one has not been purged."""

    origin: RunRef


class RunMessages(Struct, frozen=True):
    """Several commands of one run to others."""

    all: tuple[RunMessage, ...]


Beside = Alarm | RunMessage | RunMessages | Shares
"""What may be stored in one step with an event: there is no moment at which one is there without the other."""


class Refused(Exception):
    """The guard did not hold: the run's last event is another one. ``actual`` is its sequence where known."""

    def __init__(self, actual: int | None = None) -> None:
        super().__init__(f"the run's last event has sequence {actual}")
        self.actual = actual


class OriginGone(Exception):
    """What a fork was to go on from has been purged: nothing of the fork is stored."""


class NoAnswer(Exception):
    """The log did not answer: the entry may be stored or not."""


class Behind(NoAnswer):
    """What was read ends before what the log holds: a replica lags, and will have the rest."""


class Full(NoAnswer):
    """The log takes nothing in just now. It says so, and then nothing of it is stored; or (``failing``) it answers
    whatever does not write, and no append. For whoever tries again it is an `NoAnswer` like others."""

    def __init__(self, reason: str, *, failing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failing = failing

    def told(self, what: str = "") -> StoreFull:
        """Return the error for people, about what was to be stored."""
        return StoreFull(self.reason, failing=self.failing, what=what)


class Reading(Protocol):
    """Where runs can be read: every `EventLog`, and `callboard.bus.archive.ArchivedLog`."""

    async def last(self, ref: RunRef) -> Recorded | None:
        """Return a run's last event, read where it cannot be stale.

        :raises NoAnswer: if no answer came
        """
        ...

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        """Return a run's events in order, those behind the sequence ``after``, at most so many.

        With ``bytes_max`` no more are read where they have so many bytes together: whoever wants the rest reads on
        behind them, until there is nothing.
        A fork has those that it shares with its origin too (`callboard.bus.forks`). May lag behind the last append.
        """
        ...

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        """Return a large value.

        :raises KeyError: if there is none of that digest
        """
        ...


class EventLog(Reading, Protocol):
    """Where events are kept. Implementations: `callboard.bus.jetstream`, `callboard.bus.memory`.

    What is read or followed is decrypted where its key is there.
    """

    @property
    def keys(self) -> KeyRing:
        """The keys that events are decrypted with."""
        ...

    def now(self) -> dt.datetime:
        """Return the time that all who write to this log agree on."""
        ...

    def without_keys(self) -> Reading:
        """The same log, as those read it who are to see no words of encrypted runs."""
        ...

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        """Store entries in order if the run's last event has the sequence ``after``; return the last one's sequence.

        Each follows the one before: whatever happens, those that are stored are the first so many of them. With
        something beside it an entry goes alone, and both are stored or neither. Use `append`, which knows what to do
        about the exceptions.

        :raises Refused: if the run's last event is another one
        :raises OriginGone: if what it `Shares` is no longer there
        :raises Full: if there is no room
        :raises NoAnswer: if no answer came
        """
        ...

    def follow(
        self, filter: str | Sequence[str], after: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Recorded]]:
        """Follow the events whose subjects match, those behind a stream sequence (None: from now on), then live.

        Of several filters no two may match the same subject.

        :raises NoAnswer: if the log does not answer for long when the following is to begin
        """
        ...

    async def put_blob(self, ref: RunRef, digest: str, data: bytes) -> None:
        """Store a large value under its digest; storing it again is harmless.

        :raises Full: if there is no room
        :raises NoAnswer: if no answer came
        """
        ...


def within(items: list[Recorded], bytes_max: int | None) -> list[Recorded]:
    """Return the first events of several, up to the one by which they have so many bytes together."""
    size = 0
    for place, item in enumerate(items, 1):
        size += len(item.data)
        if is_full(size, bytes_max):
            return items[:place]
    return items


def is_full(size: int, bytes_max: int | None) -> bool:
    """Whether events of so many bytes are enough to have been read at once."""
    return bytes_max is not None and size >= bytes_max


async def append(
    log: EventLog,
    ref: RunRef,
    entries: Sequence[Entry],
    after: int,
    beside: Beside | None = None,
    *,
    patience_s: float = APPEND_PATIENCE_S,
    room_patience_s: float = ROOM_PATIENCE_S,
) -> int:
    """Append entries to a run and return the last one's sequence: the only way anything gets below ``cb.run.``.

    Repeats while the answer is unknown, and while there is no room. A refusal is looked into at the leader: if the last
    event is one of these very entries, an acknowledgement was lost and they have been appended so far.

    :raises RunLost: if another writer has appended to the run
    :raises OriginGone: if what it `Shares` is no longer there
    :raises LogUnreadable: if what was appended last is no event
    :raises LogUnavailable: if the log gave no answer for ``patience_s`` seconds
    :raises StoreFull: if there was no room for ``room_patience_s`` seconds
    """
    patience = Patience(ref, entries[0].n, patience_s, room_patience_s)
    while True:
        full: Full | None = None
        try:
            return await log.put(ref, entries, after, beside)
        except Refused:
            try:
                last = await log.last(ref)
            except NoAnswer:
                last = None
            else:
                stored = _stored(entries, last)
                if last is not None and stored == len(entries):
                    return last.sequence
                if last is not None and stored:
                    entries, after = entries[stored:], last.sequence
                    continue
                if last is not None and not last.readable and last.sequence != after:
                    raise unreadable(last) from None
                if (last.sequence if last is not None else 0) != after:
                    raise RunLost(ref, entries[0].n, last.event if last else None) from None
                # Refused, and yet the run ends where we thought: another write was in flight and has gone. Try again.
        except Full as error:
            full = error
        except NoAnswer:
            pass
        await patience.pause(full)


def _stored(entries: Sequence[Entry], last: Recorded | None) -> int:
    """How many entries are stored, if a run's last event is one of them; else 0."""
    return next((i for i, entry in enumerate(entries, 1) if last is not None and entry.id == last.id), 0)


async def store_blob(
    log: EventLog,
    ref: RunRef,
    n: int,
    digest: str,
    data: bytes,
    *,
    patience_s: float = APPEND_PATIENCE_S,
    room_patience_s: float = ROOM_PATIENCE_S,
) -> None:
    """Store a large value of event ``n``, as patiently as the event will be appended.

    :raises LogUnavailable: if the log gave no answer for ``patience_s`` seconds
    :raises StoreFull: if there was no room for ``room_patience_s`` seconds
    """
    patience = Patience(ref, n, patience_s, room_patience_s)
    while True:
        full: Full | None = None
        try:
            return await log.put_blob(ref, digest, data)
        except Full as error:
            full = error
        except NoAnswer:
            pass
        await patience.pause(full)


class Patience:
    """Pauses between tries, longer and longer, until there have been enough.

    Where there is no room one waits longer than where there is no answer, and each has a time of its own.
    """

    def __init__(self, ref: RunRef, n: int, patience_s: float, room_patience_s: float = ROOM_PATIENCE_S) -> None:
        self._ref = ref
        self._n = n
        self._patience_s = patience_s
        self._room_patience_s = room_patience_s
        self._deadline: float | None = None
        self._room_deadline: float | None = None
        self._tried = 0

    async def pause(self, full: Full | None = None) -> None:
        """Wait a little, because there was no answer, or no room.

        :raises LogUnavailable: if the patience with silence is used up
        :raises StoreFull: if that for room is
        """
        # The clock is looked at when something has gone wrong: nearly every append succeeds at once.
        now = anyio.current_time()
        self._tried += 1
        pause_s = backoff_s(self._tried, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S)
        if full is not None:
            self._deadline = None
            self._room_deadline = self._room_deadline or now + self._room_patience_s
            if now + pause_s > self._room_deadline:
                raise full.told(f"event {self._n} of {self._ref.run}") from full
        else:
            self._deadline = self._deadline or now + self._patience_s
            if now + pause_s > self._deadline:
                raise LogUnavailable(self._ref, self._n, self._patience_s)
        await anyio.sleep(pause_s)


async def whole(log: Reading, recorded: Recorded) -> Event:
    """Return a recorded event with its large values put back in; `UNREADABLE` if that is not possible.

    :raises NoAnswer: if no answer came
    """
    event = recorded.event
    if not event.blobs or recorded.encrypted:
        return event
    try:
        blobs = {digest: await log.get_blob(recorded.ref, digest) for digest in event.blobs}
    except KeyError as error:
        return _without_payload(recorded, f"its large value {error.args[0]} is missing")
    payload = msgspec.Raw(payloads.join(bytes(event.payload), blobs))
    try:
        if event.type in TYPES:
            decode_payload(event.type, payload)
    except JSON_ERRORS as error:
        return _without_payload(recorded, str(error))
    return msgspec.structs.replace(event, payload=payload)


def _without_payload(recorded: Recorded, reason: str) -> Event:
    """Make the event that represents one whose payload cannot be read: the rest of it is known."""
    event = recorded.event
    unreadable = Unreadable(recorded.sequence, f"{event.type}, event {event.n}", reason)
    return msgspec.structs.replace(event, type=UNREADABLE, payload=Raw(msgspec.json.encode(unreadable)))
