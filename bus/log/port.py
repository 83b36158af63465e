"""The event log: the interface of every implementation, and the only function that appends to a run.

An append contains the stream sequence of the run's previous event (0 for the first event). The log refuses the append
if another event has been stored in between. So only one worker can append to a run at a time, even if two workers have
claimed it, and event n+1 cannot exist without event n.
"""

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import msgspec
from msgspec import Raw, Struct

from callboard.bus.errors import LogUnavailable, RunLost, StoreFull
from callboard.bus.events import (
    Event,
)
from callboard.bus.log import payloads
from callboard.bus.log.damage import UNREADABLE, UnreadableEvent
from callboard.bus.log.encryption import KeyRing
from callboard.bus.log.recorded import Recorded, replace_unknown, unreadable
from callboard.bus.subjects import RunRef
from callboard.lib.backoff import backoff_s
from callboard.lib.json_errors import JSON_ERRORS

APPEND_PATIENCE_S = 60.0
"""How long an append is repeated while the log does not answer. An election of a leader takes up to 10 s."""

ROOM_PATIENCE_S = 24 * 3600.0
"""How long an append waits while the store is full. It waits for an operator, because without the append the effects
that the run has carried out would have to be repeated."""

RETRY_PAUSE_S = 0.1
"""First pause between two attempts of an append; doubled up to `RETRY_PAUSE_MAX_S`."""

RETRY_PAUSE_MAX_S = 2.0


class Entry(msgspec.Struct, frozen=True):
    """An encoded event to append. ``id`` is unique for each entry, so that its writer recognizes it in the log."""

    n: int
    epoch: int
    type: str
    definition: str
    id: str
    data: bytes


class Alarm(Struct, frozen=True):
    """The timer of a parked run. It is set together with an event, and arrives as a command when it is due."""

    due: dt.datetime
    partition: int


class RunMessage(Struct, frozen=True):
    """A command of one run to another, stored together with the event that causes it."""

    to: RunRef
    verb: str
    body: bytes


class Shares(Struct, frozen=True):
    """A note that a run is a fork of ``origin``. It is stored only if the origin has not been purged."""

    origin: RunRef


class FirstCommand(Struct, frozen=True):
    """The command that activates a new run, stored together with the run's first events.

    Both are stored only if no run with this id has been purged. ``worker`` is the one that must perform the run, empty
    for any.
    """

    worker: str = ""


class SuccessorStart(Struct, frozen=True):
    """The start of the run that continues a run, stored together with that run's end."""

    tenant: str
    body: bytes


class RunMessages(Struct, frozen=True):
    """Several messages that belong to one event."""

    all: "tuple[RunMessage | SuccessorStart, ...]"


Beside = Alarm | RunMessage | SuccessorStart | RunMessages | Shares | FirstCommand
"""Messages that are stored atomically with events: all of them are stored, or none."""


class AppendRefused(Exception):
    """The guard did not hold: the run's last event is another one. ``actual`` is its sequence, if known."""

    def __init__(self, actual: int | None = None) -> None:
        super().__init__(f"the run's last event has sequence {actual}")
        self.actual = actual


class Purged(Exception):
    """The origin of a fork, or a run with the id of a new run, has been purged. Nothing of the new run is stored."""


class NoAnswer(Exception):
    """The log did not answer. The entry may be stored or not."""


class Behind(NoAnswer):
    """A read returned fewer events than the log contains, because a replica lags. A later read returns the rest."""


class Full(NoAnswer):
    """The log currently accepts no writes. Either it reports that it is full, and has stored nothing; or (``failing``)
    it answers reads, but no append. Code that repeats requests can handle it like any other `NoAnswer`."""

    def __init__(self, reason: str, *, failing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.failing = failing

    def store_full_error(self, what: str = "") -> StoreFull:
        """Return the error to show to people; ``what`` is the message that should be stored."""
        return StoreFull(self.reason, failing=self.failing, what=what)


class LogReader(Protocol):
    """A source that runs can be read from: every `EventLog`, and `callboard.bus.nats.archive.ArchivedLog`."""

    async def last(self, ref: RunRef) -> Recorded | None:
        """Return a run's last event, read from the leader, so that it is up to date.

        :raises NoAnswer: if no answer came
        """
        ...

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        """Return a run's events in order, those after the sequence ``after``, at most ``limit``.

        With ``bytes_max`` the read stops when the events together have this many bytes. To get the rest, the caller
        reads again after the last one, until the result is empty. The events of a fork include those that it shares
        with its origin (`callboard.bus.log.forks`). The result may lack the latest appends.
        """
        ...

    async def get_blob(self, ref: RunRef, digest: str) -> bytes:
        """Return a large value.

        :raises KeyError: if no value has that digest
        """
        ...


class EventLog(LogReader, Protocol):
    """A store of events. Implementations: `callboard.bus.nats.jetstream`, `callboard.bus.log.memory`.

    Events that are read or followed are decrypted if their key is available.
    """

    @property
    def keys(self) -> KeyRing:
        """The keys that events are decrypted with."""
        ...

    def now(self) -> dt.datetime:
        """Return the current time, on the clock that all writers of this log share."""
        ...

    def without_keys(self) -> LogReader:
        """Return the same log for readers that must not see the texts of encrypted runs."""
        ...

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        """Store entries in order if the run's last event has the sequence ``after``; return the last one's sequence.

        If this fails, some entries may be stored, but only from the first one on, without gaps. With ``beside``, all
        entries and messages are stored or none of them. Use `append`, which handles the exceptions.

        :raises AppendRefused: if the run's last event is another one
        :raises Purged: if ``beside`` is a `Shares` or a `FirstCommand`, and the origin or the run's id was purged
        :raises Full: if the store is full
        :raises NoAnswer: if no answer came
        """
        ...

    def follow(
        self, filter: str | Sequence[str], after: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Recorded]]:
        """Follow the events whose subjects match, first the stored ones after a stream sequence, then live ones.

        With ``after`` None, only live events are yielded. Two filters must not match the same subject.

        :raises NoAnswer: if the log does not answer at the beginning for too long
        """
        ...

    async def put_blob(self, ref: RunRef, digest: str, data: bytes) -> None:
        """Store a large value under its digest. Storing it twice is allowed.

        :raises Full: if the store is full
        :raises NoAnswer: if no answer came
        """
        ...


class Appendable(Protocol):
    """The part of a log that `append` uses."""

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int: ...

    async def last(self, ref: RunRef) -> Recorded | None: ...


async def append(
    log: Appendable,
    ref: RunRef,
    entries: Sequence[Entry],
    after: int,
    beside: Beside | None = None,
    *,
    patience_s: float = APPEND_PATIENCE_S,
    room_patience_s: float = ROOM_PATIENCE_S,
) -> int:
    """Append entries to a run and return the last one's sequence. Only this function writes to ``cb.run.``.

    It repeats the append while the result is unknown, and while the store is full. After a refusal it reads the last
    event from the leader. If that is one of these entries, it was stored before and its acknowledgement was lost.

    :raises RunLost: if another writer has appended to the run
    :raises Purged: if ``beside`` is a `Shares` or a `FirstCommand`, and the origin or the run's id was purged
    :raises LogUnreadable: if the run's last message is not an event
    :raises LogUnavailable: if the log gave no answer for ``patience_s`` seconds
    :raises StoreFull: if the store was full for ``room_patience_s`` seconds
    """
    patience = Patience(ref, entries[0].n, patience_s, room_patience_s)
    while True:
        full: Full | None = None
        try:
            return await log.put(ref, entries, after, beside)
        except AppendRefused:
            try:
                last = await log.last(ref)
            except NoAnswer:
                last = None
            else:
                stored = _count_stored(entries, last)
                if last is not None and stored == len(entries):
                    return last.sequence
                if last is not None and stored:
                    entries, after = entries[stored:], last.sequence
                    continue
                if last is not None and not last.readable and last.sequence != after:
                    raise unreadable(last) from None
                if (last.sequence if last is not None else 0) != after:
                    raise RunLost(ref, entries[0].n, last.event if last else None) from None
                # The run's last event is the expected one: another write was in flight and has failed. Try again.
        except Full as error:
            full = error
        except NoAnswer:
            pass
        await patience.pause(full)


def _count_stored(entries: Sequence[Entry], last: Recorded | None) -> int:
    """Return how many entries are stored, given the run's last event: 0 if it is not one of them."""
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
    """Store a large value of event ``n``. Repeat that as `append` does for events.

    :raises LogUnavailable: if the log gave no answer for ``patience_s`` seconds
    :raises StoreFull: if the store was full for ``room_patience_s`` seconds
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
    """Pauses between attempts, each longer than the previous one, up to a time limit.

    The limit for a full store is separate from the limit for a log that does not answer, and is longer.
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
        """Wait before the next attempt, because the server did not answer or the store is full.

        :raises LogUnavailable: if the log gave no answer for too long
        :raises StoreFull: if the store was full for too long
        """
        # The clock is read only after a failure, because nearly every append succeeds at once.
        now = anyio.current_time()
        self._tried += 1
        pause_s = backoff_s(self._tried, RETRY_PAUSE_S, RETRY_PAUSE_MAX_S)
        if full is not None:
            self._deadline = None
            self._room_deadline = self._room_deadline or now + self._room_patience_s
            if now + pause_s > self._room_deadline:
                raise full.store_full_error(f"event {self._n} of {self._ref.run}") from full
        else:
            self._deadline = self._deadline or now + self._patience_s
            if now + pause_s > self._deadline:
                raise LogUnavailable(self._ref, self._n, self._patience_s)
        await anyio.sleep(pause_s)


async def whole(log: LogReader, recorded: Recorded) -> Event:
    """Return a recorded event with its large values inserted; of type `UNREADABLE` if that is not possible.

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
        return replace_unknown(msgspec.structs.replace(event, payload=payload), recorded.id)
    except JSON_ERRORS as error:
        return _without_payload(recorded, str(error))


def _without_payload(recorded: Recorded, reason: str) -> Event:
    """Make the event that represents one whose payload cannot be read; keep the rest of the envelope."""
    event = recorded.event
    unreadable = UnreadableEvent(recorded.sequence, f"{event.type}, event {event.n}", reason)
    return msgspec.structs.replace(event, type=UNREADABLE, payload=Raw(msgspec.json.encode(unreadable)))
