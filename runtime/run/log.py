"""A run's own log: the only place that numbers its events, and the queue from which they are appended.

Numbering is synchronous and final. Queued events are appended in order and in batches, so no event can be stored
without those before it, but a turn may be stored in part. Events are numbered when the interpreter states facts and
when outcomes arrive, so the number alone decides every race.
"""

import datetime as dt
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import islice

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from callboard.bus.events import SCHEMA_VERSION, Event, Payload, decode_payload, encode_event, encode_payload
from callboard.bus.log import payloads
from callboard.bus.log.encryption import Key, Undecipherable, is_encrypted
from callboard.bus.log.port import (
    ROOM_PATIENCE_S,
    Beside,
    Entry,
    EventLog,
    FirstCommand,
    LogReader,
    append,
    store_blob,
    whole,
)
from callboard.bus.log.recorded import Recorded, is_lost, lost_last
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.redaction import Redaction
from callboard.lib.threads import Beside as BesideLoop
from callboard.lib.threads import on_a_thread

Clock = Callable[[], dt.datetime]

AT_ONCE_BYTES_MAX = 256 * 1024
"""A larger payload is prepared for appending on a thread."""

TOGETHER_MAX = 100
"""Maximum number of events that are appended in one batch."""


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _never(_event: Event) -> bool:
    return False


class Queued(Struct):
    """A numbered event that waits to be appended.

    ``stored`` is its stored form, once it is prepared: without large values, which are in ``blobs``, and encrypted if
    the run is. ``beside`` is stored in one atomic step with it.
    """

    event: Event
    stored: Event | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    beside: Beside | None = None

    def prepare(self, inline_bytes_max: int, key: Key | None) -> Event:
        """Return the stored form of the event. May be called on any thread, because splitting, hashing and encrypting
        a large event take long."""
        if self.stored is None:
            event, payload = self.event, bytes(self.event.payload)
            slim, blobs = payloads.split(payload, inline_bytes_max)
            if key is not None:
                slim, blobs = key.payload(event.type, event.n, slim, blobs)
            self.blobs = blobs
            self.stored = event if slim is payload else replace(event, payload=Raw(slim), blobs=list(blobs))
        return self.stored


class RunLog:
    """The only writer of a run's events: seals them (replaces secrets), numbers and appends them."""

    def __init__(
        self,
        log: EventLog,
        ref: RunRef,
        *,
        writer: str,
        clock: Clock | None = None,
        inline_bytes_max: int = payloads.INLINE_BYTES_MAX,
        room_patience_s: float = ROOM_PATIENCE_S,
        beside: BesideLoop = on_a_thread,
    ) -> None:
        self.ref = ref
        self.definition = ""
        self.epoch = 0
        self.n = 0
        self.queue: deque[Queued] = deque()
        """Events that are numbered but not yet acknowledged."""
        self.numbered: deque[Event] = deque()
        """Events that are numbered but not yet delivered to the interpreter; the run's loop takes them."""
        self._log = log
        # Unique to this activation, even among processes of the same name.
        self._writer = f"{writer}.{secrets.token_hex(4)}"
        self._clock = clock or log.now
        self._inline_bytes_max = inline_bytes_max
        self.room_patience_s = room_patience_s
        """How long an append waits for space in a full store, in seconds."""
        self._beside = beside
        self._sequence = 0
        self._time = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._known_blobs: set[str] = set()
        self.key: Key | None = None
        """The run's encryption key, if it has one."""
        self._redaction = Redaction()

    def continue_from(self, recorded: Sequence[Recorded], after: int | None = None) -> None:
        """Continue after the last of the run's events, with the definition and key of the first.

        ``after`` is the sequence of the message stored last, if that is not the last of these events: an unreadable
        message, or the first event of a fork that has not recorded anything else.
        """
        last = recorded[-1]
        event = last.event
        self.n = event.n
        self.epoch = event.epoch
        # The first event is the run's own, even if the last one belongs to the origin of a fork.
        self.definition = recorded[0].event.definition
        self.key = recorded[0].key
        self._sequence = last.sequence if after is None else after
        self._time = max(self._time, event.time)

    @property
    def sequence(self) -> int:
        """The stream sequence of the last event that was read or appended here."""
        return self._sequence

    def know_blobs(self, digests: Sequence[str]) -> None:
        """Note large values that the log has already."""
        self._known_blobs.update(digests)

    def keep_secret(self, values: Mapping[str, str]) -> None:
        """Replace these values (by name) in everything that is recorded."""
        self._redaction.add(values)

    # -- numbering ----------------------------------------------------------------------------------------------------

    def clock(self) -> dt.datetime:
        """The run's clock: never before its last event."""
        now = self._clock()
        if now > self._time:
            self._time = now
        return self._time

    def reach(self, instant: dt.datetime) -> None:
        """Advance the run's clock to an instant that the server's clock has passed."""
        self._time = max(self._time, instant)

    def seal(self, payload: Payload) -> bytes:
        """Encode a payload in its recorded form, with secrets replaced."""
        data = encode_payload(payload)
        if not self._redaction.concerns(data):
            return data
        members = decode_json(data)
        sealed = msgspec.json.encode({name: self._redaction.value(value) for name, value in members.items()})
        try:
            decode_payload(payload.type, sealed)
        except msgspec.ValidationError:
            # The secret equals a word of the vocabulary, such as an outcome, so it is not really secret.
            return data
        return sealed

    def write(
        self,
        event_type: str,
        payload: bytes,
        path: str,
        iteration: int,
        attempt: int,
        key: str,
        source: str = "",
        *,
        cause: int = 0,
    ) -> Event:
        """Number a sealed payload and queue it."""
        self.n += 1
        # As `clock`, without another call.
        now = self._clock()
        if now > self._time:
            self._time = now
        event = Event(
            type=event_type,
            run=self.ref.run,
            n=self.n,
            epoch=self.epoch,
            v=SCHEMA_VERSION,
            time=self._time,
            path=path,
            definition=self.definition,
            iteration=iteration,
            attempt=attempt,
            key=key,
            cause=cause,
            source=source,
            payload=Raw(payload),
        )
        self.queue.append(Queued(event))
        self.numbered.append(event)
        return event

    def state(self, payload: Payload, *, key: str = "", cause: int = 0, node: "Address | None" = None) -> Event:
        """Number and queue a payload that the runtime states."""
        path, iteration, attempt = node or _RUN
        return self.write(payload.type, self.seal(payload), path, iteration, attempt, key, cause=cause)

    async def keep(self, data: bytes) -> str:
        """Store a large value for a later event, encrypted if the run is; return its digest.

        :raises LogUnavailable: if the log does not answer for too long
        :raises StoreFull: if the store is full for too long
        """
        stored = data if self.key is None else self.key.value(data)
        digest = sha256(stored).hexdigest()
        await store_blob(self._log, self.ref, self.n, digest, stored, room_patience_s=self.room_patience_s)
        return digest

    def command(self, body: bytes) -> bytes:
        """The body of a command to the run, decrypted if it is encrypted with the run's key."""
        if self.key is None or not is_encrypted(body):
            return body
        try:
            return self.key.decrypted_command(body)
        except (*JSON_ERRORS, Undecipherable):
            return body  # not encrypted by Callboard; the command is refused as malformed

    # -- appending ----------------------------------------------------------------------------------------------------

    async def append_queued(self, alone: Callable[[Event], bool] = _never) -> list[Queued]:
        """Append the oldest queued events in one batch; return them once they are acknowledged.

        An event with a ``beside`` is the first of its batch. One for which ``alone`` returns true is appended
        separately.

        :raises RunLost: if another writer has appended to the run
        :raises Purged: if the first event's ``beside`` is stored only if a run was not purged, and it was
        :raises LogUnavailable: if the log does not answer for too long
        :raises StoreFull: if the store is full for too long
        """
        patience_s = self.room_patience_s
        together = self._together(alone)
        for queued in together:
            if self.key is None and len(queued.event.payload) <= self._inline_bytes_max:
                continue  # Nothing of it is encrypted or stored separately.
            await self._prepare(queued)
            for digest in queued.blobs:
                if digest not in self._known_blobs:
                    n, data = queued.event.n, queued.blobs[digest]
                    await store_blob(self._log, self.ref, n, digest, data, room_patience_s=patience_s)
                    self._known_blobs.add(digest)
        entries = [self._entry(queued) for queued in together]
        self._sequence = await append(
            self._log, self.ref, entries, self._sequence, together[0].beside, room_patience_s=patience_s
        )
        for _ in together:
            self.queue.popleft()
        return together

    async def _prepare(self, queued: Queued) -> None:
        """Prepare the stored form of an event, on a thread if the event is large."""

        def prepare() -> None:
            queued.prepare(self._inline_bytes_max, self.key)

        if len(queued.event.payload) <= AT_ONCE_BYTES_MAX:
            prepare()
        else:
            await self._beside(prepare)

    def _together(self, alone: Callable[[Event], bool]) -> list[Queued]:
        first = self.queue[0]
        if len(self.queue) == 1 or alone(first.event):
            return [first]
        is_new = isinstance(first.beside, FirstCommand)
        together = [first]
        for queued in islice(self.queue, 1, TOGETHER_MAX):
            # Large values are stored before their event. If a new run is refused, none of them may stay in the stream.
            is_large = is_new and len(queued.event.payload) > self._inline_bytes_max
            if is_large or queued.beside is not None or alone(queued.event):
                break
            together.append(queued)
        return together

    def _entry(self, queued: Queued) -> Entry:
        event = queued.event
        mark = f"{self._writer}.{event.epoch}.{event.n}"
        stored = event if queued.stored is None else queued.stored
        return Entry(event.n, event.epoch, event.type, self.definition, mark, encode_event(stored))


Address = tuple[str, int, int]
"""Path, iteration and attempt."""

_RUN: Address = ("", 0, 0)


async def read_run(log: LogReader, ref: RunRef, after: int = 0, limit: int | None = None) -> list[Recorded]:
    """Read a run's events, at most ``limit``, with their large values inserted.

    A caller that acts on the events must first pass them through `callboard.bus.log.recorded.readable`.
    """
    found = await log.read(ref, after, limit)
    for place, recorded in enumerate(found):
        if recorded.event.blobs:
            found[place] = replace(recorded, event=await whole(log, recorded))
    return found


async def read_for_view(log: LogReader, ref: RunRef) -> list[Recorded]:
    """Read a run's events like `read_run`, including a damaged last event, as an unreadable one."""
    found = await read_run(log, ref)
    if found and is_lost(await log.last(ref)):
        found.append(lost_last(ref, found[-1].event.n + 1, found[-1].sequence + 1))
    return found


def events_of(recorded: Sequence[Recorded]) -> list[Event]:
    return [item.event for item in recorded]
