"""A run's own log: the one place that numbers its events, and the queue through which they are appended.

Numbering is synchronous and final; appending follows in order, what has queued up in one go: none can be stored without
those before it, and a turn need not be stored whole.
Events are numbered as the interpreter states facts and as outcomes come in, so the number alone decides every race.
"""

import datetime as dt
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import islice, takewhile

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
    Reading,
    Recorded,
    append,
    is_lost,
    lost_last,
    store_blob,
    whole,
)
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.redaction import Redaction
from callboard.lib.threads import Beside as BesideLoop
from callboard.lib.threads import on_a_thread

Clock = Callable[[], dt.datetime]

AT_ONCE_BYTES_MAX = 256 * 1024
"""A larger payload is prepared for its append on a thread."""

TOGETHER_MAX = 100
"""Events of one run that are appended in one go."""


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _never(_event: Event) -> bool:
    return False


class Queued(Struct):
    """A numbered event that waits for its append. ``stored`` is the same as the log takes it, once it is prepared:
    without its large values, which are ``blobs``, and encrypted if the run is. ``beside`` is what is to be stored in
    one step with it."""

    event: Event
    stored: Event | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    beside: Beside | None = None

    def prepare(self, inline_bytes_max: int, key: Key | None) -> Event:
        """Return the event as the log takes it. Splitting, hashing and encrypting a large one takes long; it may be
        done on any thread."""
        if self.stored is None:
            event, payload = self.event, bytes(self.event.payload)
            slim, blobs = payloads.split(payload, inline_bytes_max)
            if key is not None:
                slim, blobs = key.payload(event.type, event.n, slim, blobs)
            self.blobs = blobs
            self.stored = event if slim is payload else replace(event, payload=Raw(slim), blobs=list(blobs))
        return self.stored


class RunLog:
    """The one writer of a run's events: numbers them, seals them (replaces secrets), and appends them."""

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
        """What is numbered and not yet acknowledged."""
        self.numbered: deque[Event] = deque()
        """What is numbered and not yet delivered to the interpreter; the run's loop takes it."""
        self._log = log
        # Unlike that of any other activation, be it in a process of the same name.
        self._writer = f"{writer}.{secrets.token_hex(4)}"
        self._clock = clock or log.now
        self._inline_bytes_max = inline_bytes_max
        self._room_patience_s = room_patience_s
        self._beside = beside
        self._sequence = 0
        self._time = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._known_blobs: set[str] = set()
        self.key: Key | None = None
        """What the run is encrypted with."""
        self._redaction = Redaction()

    def continue_from(self, recorded: Sequence[Recorded], behind: int | None = None) -> None:
        """Take the last of the run's events as the one to follow, and what they all have in common, definition and key,
        of the first; ``behind`` is the sequence of what was stored last, where that is something else: no event, or the
        first one of a fork that has done nothing yet."""
        last = recorded[-1]
        event = last.event
        self.n = event.n
        self.epoch = event.epoch
        # The first is the run's own, also where the last is one of a fork's origin.
        self.definition = recorded[0].event.definition
        self.key = recorded[0].key
        self._sequence = last.sequence if behind is None else behind
        self._time = max(self._time, event.time)

    @property
    def sequence(self) -> int:
        """The stream sequence of the run's last event, as far as is known here."""
        return self._sequence

    def know_blobs(self, digests: Sequence[str]) -> None:
        """Note which large values the log holds already."""
        self._known_blobs.update(digests)

    def keep_secret(self, values: Mapping[str, str]) -> None:
        """Replace these values (by name) wherever they would be recorded."""
        self._redaction.add(values)

    # -- numbering ----------------------------------------------------------------------------------------------------

    def clock(self) -> dt.datetime:
        """The run's clock: never before its last event."""
        self._time = max(self._clock(), self._time)
        return self._time

    def reach(self, instant: dt.datetime) -> None:
        """Advance the run's clock to an instant that the server's clock has passed."""
        self._time = max(self._time, instant)

    def seal(self, payload: Payload) -> bytes:
        """Encode a payload in its recorded form: secrets replaced."""
        data = encode_payload(payload)
        if not self._redaction.concerns(data):
            return data
        members = decode_json(data)
        sealed = msgspec.json.encode({name: self._redaction.value(value) for name, value in members.items()})
        try:
            decode_payload(payload.type, sealed)
        except msgspec.ValidationError:
            # The secret is a word of the vocabulary, such as an outcome: no secret at all.
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
        event = Event(
            type=event_type,
            run=self.ref.run,
            n=self.n,
            epoch=self.epoch,
            v=SCHEMA_VERSION,
            time=self.clock(),
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
        """Number and queue a payload of the runtime's own."""
        path, iteration, attempt = node or _RUN
        return self.write(payload.type, self.seal(payload), path, iteration, attempt, key, cause=cause)

    async def keep(self, data: bytes) -> str:
        """Store a value that an event will name beside the run's events, encrypted if they are; return its digest.

        :raises LogUnavailable: if the log does not answer for too long
        :raises StoreFull: if it has no room for too long
        """
        stored = data if self.key is None else self.key.value(data)
        digest = sha256(stored).hexdigest()
        await store_blob(self._log, self.ref, self.n, digest, stored, room_patience_s=self._room_patience_s)
        return digest

    def command(self, body: bytes) -> bytes:
        """The body of a command that has come for the run, decrypted if it is encrypted as the run is."""
        if self.key is None or not is_encrypted(body):
            return body
        try:
            return self.key.decrypted_command(body)
        except (*JSON_ERRORS, Undecipherable):
            return body  # a stranger's words, and refused as such

    # -- appending ----------------------------------------------------------------------------------------------------

    async def append_queued(self, alone: Callable[[Event], bool] = _never) -> list[Queued]:
        """Append the oldest queued event, and with it those behind it; return them once they are acknowledged.

        What has something beside it, and what goes ``alone``, is appended by itself.

        :raises RunLost: if another writer has appended to the run
        :raises LogUnavailable: if the log does not answer for too long
        :raises StoreFull: if it has no room for too long
        """
        patience_s = self._room_patience_s
        together = self._together(alone)
        for queued in together:
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
        """Make the event as the log takes it, beside the loop if it is large."""

        def prepare() -> None:
            queued.prepare(self._inline_bytes_max, self.key)

        if len(queued.event.payload) <= AT_ONCE_BYTES_MAX:
            prepare()
        else:
            await self._beside(prepare)

    def _together(self, alone: Callable[[Event], bool]) -> list[Queued]:
        first = self.queue[0]
        if first.beside is not None or alone(first.event):
            return [first]
        behind = takewhile(lambda queued: queued.beside is None and not alone(queued.event), self.queue)
        return list(islice(behind, TOGETHER_MAX))

    def _entry(self, queued: Queued) -> Entry:
        event = queued.event
        mark = f"{self._writer}.{event.epoch}.{event.n}"
        stored = queued.prepare(self._inline_bytes_max, self.key)
        return Entry(event.n, event.epoch, event.type, self.definition, mark, encode_event(stored))


Address = tuple[str, int, int]
"""Path, iteration and attempt."""

_RUN: Address = ("", 0, 0)


async def read_run(log: Reading, ref: RunRef, after: int = 0, limit: int | None = None) -> list[Recorded]:
    """Read a run's events, at most so many, with their large values put back in; for those who only look.

    Whoever acts upon them takes them through `callboard.bus.log.port.readable`.
    """
    found = await log.read(ref, after, limit)
    for place, recorded in enumerate(found):
        if recorded.event.blobs:
            found[place] = replace(recorded, event=await whole(log, recorded))
    return found


async def read_for_view(log: Reading, ref: RunRef) -> list[Recorded]:
    """Read a run's events as `read_run`. A damaged last event is there as well, as an unreadable one."""
    found = await read_run(log, ref)
    if found and is_lost(await log.last(ref)):
        found.append(lost_last(ref, found[-1].event.n + 1, found[-1].sequence + 1))
    return found


def events_of(recorded: Sequence[Recorded]) -> list[Event]:
    return [item.event for item in recorded]
