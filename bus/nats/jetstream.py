"""The event log on NATS JetStream: guarded publishes, atomic batches, reading and following.

Every append of a run has a guard of two headers: the filter ``cb.run.<tenant>.<run>.>``, and the sequence that must be
the last one on this filter. All writers use the identical filter. A replicated stream needs this, because it tracks
writes in flight per filter string.

Headers: ``Nats-Expected-Last-Subject-Sequence`` and ``…-Subject`` (the guard), ``Nats-Schedule`` and
``Nats-Schedule-Target`` (ADR-51, alarms), ``Nats-Batch-*`` (ADR-50, atomic batches). Fast batches (also ADR-50) have
reply subjects instead of headers. Our own headers are ``Cb-Id``, which identifies the writer of an event, and ``Cb-N``,
the event's number.
"""

import base64
import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from time import monotonic
from typing import TypeVar

import anyio
import anyio.lowlevel
import msgspec
import structlog
from nats.errors import Error as NatsError

from callboard.bus.commands import WORKER_HEADER
from callboard.bus.events import RunEnd
from callboard.bus.log.encryption import KeyRing, Lack, NoKeys, Undecipherable, key_of_value
from callboard.bus.log.forks import with_origin
from callboard.bus.log.port import (
    Alarm,
    AppendRefused,
    Beside,
    Entry,
    FirstCommand,
    Full,
    NoAnswer,
    Purged,
    RunMessage,
    RunMessages,
    Shares,
    SuccessorStart,
)
from callboard.bus.log.recorded import Recorded, decode_recorded, decrypt_event, is_full, lost_last, within
from callboard.bus.nats.blobs import Blobs, BlobTooLarge
from callboard.bus.nats.capacity import StreamSpace
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.cold_runs import (
    ColdRuns,
    moved_end,
    value_of,
)
from callboard.bus.nats.commit import (
    Committer,
    OutgoingMessage,
    guard_headers,
    publish,
    publish_batch,
    publish_chain,
    publish_known,
    publish_turn,
)
from callboard.bus.nats.feed import MARK, RESTORED, Feed
from callboard.bus.nats.jetstream_api import direct_get
from callboard.bus.nats.keys import StreamKeys
from callboard.bus.nats.requests import REQUEST_TIMEOUT_S, Silent
from callboard.bus.nats.server_clock import ServerClock
from callboard.bus.nats.staging_probe import batches_are_cheap
from callboard.bus.nats.stored_messages import (
    READ_BATCH,
    READ_BYTES_MAX,
    StoredMessages,
    decode_headers,
    is_of_type,
)
from callboard.bus.nats.stream import ensure_stream, store_of, stream_of
from callboard.bus.subjects import RunRef, Subjects, partition_of

logger = structlog.get_logger(__name__)

T = TypeVar("T")

READ_TOGETHER = 128
"""Number of events to decode before other tasks get a turn."""

BLOB_TRIES = 3
BLOB_RETRY_S = 0.2
"""Number of attempts to read a large value, and the pause between them. On a replica it may arrive later than the event
that refers to it."""

NUMBER = "Cb-N"


def at(moment: dt.datetime, target: str) -> dict[str, str]:
    """Return headers with which the server publishes a message's body once, to a subject, at the given time."""
    time = f"{moment.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return {"Nats-Schedule": f"@at {time}", "Nats-Schedule-Target": target}


class JetStreamLog(StoredMessages):
    """An `EventLog` on one stream. Create it with `open_log`."""

    def __init__(
        self,
        nc: ReconnectingClient,
        subjects: Subjects,
        stream: str,
        partitions: int,
        *,
        group_commit: bool,
        replicas: int = 1,
    ) -> None:
        super().__init__(nc, subjects, stream)
        self.partitions = partitions
        self.store = ""
        """A unique and permanent identifier of this stream (`store_of`)."""
        self.keys = StreamKeys(self.requests, subjects, replicas=replicas)
        self.ring: KeyRing = self.keys
        """The keys that events and values are decrypted with."""
        self.clock = ServerClock()
        self.now = self.clock.now
        self.room = StreamSpace()
        self.cold = ColdRuns(self, None)
        """Reads runs that have been moved out of the stream."""
        self._blobs = Blobs(nc, self.requests, stream, self.publish)
        self.appended: Callable[[float], None] = lambda _seconds: None
        """Called with the duration of each append, in seconds."""
        self.batches = False
        """Whether an atomic batch is cheaper than its messages one by one, because the server does not stage it in
        files."""
        self.fast = False
        """Whether the stream takes fast batches, which are not atomic."""
        self._committer = Committer(self.requests) if group_commit else None

    async def choose_commit(self, *, group_commit: bool | None, batches: bool | None = None) -> None:
        """Choose the cheapest way to append on this server.

        ``group_commit`` merges the appends of many runs; None: if batches are cheap, or if the log was opened with
        group commit. ``batches`` says whether batches are cheap; None: measure it.

        :raises NoAnswer: if no answer came
        """
        self.batches = await batches_are_cheap(self.requests, self.subjects) if batches is None else batches
        merges = self.batches or self._committer is not None if group_commit is None else group_commit
        self._committer = Committer(self.requests, batches=self.batches, fast=self.fast) if merges else None

    # -- writing ------------------------------------------------------------------------------------------------------

    async def put(self, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        began = monotonic()
        self.room.check()
        guard, subject_of = guard_headers(after, self.subjects.run(ref)), self.subjects.event
        messages = [
            OutgoingMessage(
                subject_of(ref, entry.definition, entry.type),
                entry.data,
                {**guard, MARK: entry.id, NUMBER: str(entry.n)},
            )
            for entry in entries
        ]
        if beside is not None:
            last = await self._put_together(ref, messages, beside)
        elif self._committer is not None:
            last = await self._await_publish(self._committer.put(messages))
        elif self.batches and len(messages) > 1:
            last = await self._await_publish(publish_turn(self.requests, messages))
        else:
            last = await self._await_publish(publish_chain(self.requests, messages))
        self.appended(monotonic() - began)
        return last

    async def _put_together(self, ref: RunRef, messages: Sequence[OutgoingMessage], beside: Beside) -> int:
        # The answer is the sequence of the batch's last message. The last event precedes the other messages.
        others = [self._beside(ref, one) for one in _each(beside)]
        together = [*messages, *others]
        if self._committer is not None:
            publishing = self._committer.put(together, together=True)
        else:
            publishing = publish_batch(self.requests, together)
        try:
            return await self._await_publish(publishing) - len(others)
        except AppendRefused:
            # Either guard can be the reason: that of the run, or that of the message that goes with it.
            guarding = _guarding_run(ref, beside)
            if guarding is not None and await self.last_message(self.subjects.gone_subject(guarding)) is not None:
                raise Purged from None
            raise

    async def publish(self, message: OutgoingMessage, *, frees_room: bool = False) -> int:
        """Publish a message that is not an event; return its stream sequence.

        A message that ``frees_room``, such as the marker of a purge, is published even while the store is full.

        :raises AppendRefused: if it has a guard that does not hold
        :raises Full: if the store is full
        :raises NoAnswer: if no answer came
        """
        if not frees_room:
            self.room.check()
        return await self._await_publish(publish(self.requests, message))

    async def publish_once(self, message: OutgoingMessage, id: str) -> int:
        """Publish a message that is not an event, under an id; return its stream sequence. Raises as `publish`.

        Repeated calls store the message once and return the same sequence. Ids belong to the whole stream, and clients
        also publish to it: if a client's message already has this id, we use the next one of a fixed series of ids.
        """
        self.room.check()
        while True:
            sequence, known = await self._await_publish(publish_known(self.requests, message, id))
            stored = await self._get({"seq": sequence}) if known else None
            if stored is None or stored["subject"] == message.subject:
                return sequence
            id = f"{id}+{sequence}"

    async def publish_together(self, messages: Sequence[OutgoingMessage]) -> int:
        """Publish several messages, all or none of them; return the sequence of the last. Raises as `publish`."""
        self.room.check()
        return await self._await_publish(publish_batch(self.requests, messages))

    async def _await_publish(self, publishing: Awaitable[T]) -> T:
        """Return the result of a publish, and report a full or failing store to `room`.

        If the server does not answer, check whether its store fails.
        """
        try:
            taken = await publishing
        except Full as full:
            self.room.note_refusal(full)
            raise
        except Silent as silence:
            if self._is_denied(silence.subject) or not await self._stores_nothing():
                raise
            full = Full(f"the server answers, but has stored nothing within {REQUEST_TIMEOUT_S:g} s", failing=True)
            self.room.note_refusal(full)
            raise full from silence
        if self.room.in_doubt:
            self.room.took()
        return taken

    def _is_denied(self, subject: str) -> bool:
        """Return whether the server has denied a publish to this subject. It reports that on the connection only, so
        the request gets no answer."""
        return f'"{subject.lower()}"' in str(self.nc.last_error).lower()

    async def _stores_nothing(self) -> bool:
        """Return whether the stream exists and has a leader, but has stored nothing lately.

        A server whose disk is full or fails does not answer a publish, but answers all other requests. A server that is
        only busy still stores messages.
        """
        try:
            # Ask only once: the caller of the append is waiting, and repeats the append anyway.
            answer = msgspec.json.decode(await self.requests.request(self.nc.js(f"STREAM.INFO.{self.stream}"), b"{}"))
        except NoAnswer:
            return False
        cluster = answer.get("cluster")
        if "error" in answer or (cluster and not cluster.get("leader")):
            return False
        now, last = (msgspec.convert(time, dt.datetime) for time in (answer["ts"], answer["state"]["last_ts"]))
        return (now - last).total_seconds() >= REQUEST_TIMEOUT_S

    def _beside(
        self, ref: RunRef, beside: Alarm | RunMessage | SuccessorStart | Shares | FirstCommand
    ) -> OutgoingMessage:
        match beside:
            case Alarm(due=due, partition=partition):
                return OutgoingMessage(self.subjects.timer(ref), b"{}", at(due, self.subjects.due(partition, ref)))
            case RunMessage(to=to, verb=verb, body=body):
                # Without an id for the server's deduplication: the event's guard already prevents repetitions, and the
                # server refuses a batch that contains a known id.
                return OutgoingMessage(self.subjects.command(partition_of(to, self.partitions), to, verb), body, {})
            case SuccessorStart(tenant=tenant, body=body):
                return OutgoingMessage(self.subjects.start(tenant), body, {})
            case FirstCommand(worker=worker):
                headers = guard_headers(0, self.subjects.gone_subject(ref))
                headers |= {WORKER_HEADER: worker} if worker else {}
                return OutgoingMessage(
                    self.subjects.command(partition_of(ref, self.partitions), ref, "start"), b"{}", headers
                )
            case Shares(origin=origin):
                unmarked = guard_headers(0, self.subjects.gone_subject(origin))
                return OutgoingMessage(
                    self.subjects.forked_subject(origin), msgspec.json.encode({"fork": ref.run}), unmarked
                )

    # -- reading ------------------------------------------------------------------------------------------------------

    async def last(self, ref: RunRef) -> Recorded | None:
        found = await self.last_stored(ref)
        if found is not None and found.id.endswith(RESTORED) and found.event.type != RunEnd.type:
            # The run is being moved back from cold storage, which has its end until all events are stored again.
            cold = await self.cold_events(ref)
            return cold[-1] if cold else found
        return found

    async def last_stored(self, ref: RunRef) -> Recorded | None:
        """Return a run's last event in the stream. It is not the run's last one while a move back to the stream lasts.

        :raises NoAnswer: if the log does not answer
        """
        filter = self.subjects.run(ref)
        found = await self._last(ref, filter)
        if found is not None or await self.next_sequence(filter, 1) is None:
            return found
        # Either the first event was stored just now, or the last message is damaged.
        return await self._last(ref, filter) or lost_last(ref)

    async def last_of_type(self, ref: RunRef, event_type: str) -> Recorded | None:
        """Return a run's last event of a type, as `last`."""
        found = await self._last(ref, self.subjects.events(ref.tenant, ref.run, event_type=event_type))
        if found is not None:
            return found
        first = await self.next_message(self.subjects.run(ref), 1)
        if first is None or not is_of_type(first, RunEnd.type):
            return None
        cold = await self.cold_events(ref, first.sequence)
        return next((one for one in reversed(cold or ()) if one.event.type == event_type), None)

    async def _last(self, ref: RunRef, filter: str) -> Recorded | None:
        stored = await self._get({"last_by_subj": filter})
        if stored is None:
            return None
        mark, data = decode_headers(stored).get(MARK, ""), base64.b64decode(stored.get("data", ""))
        found = decode_recorded(stored["subject"], stored["seq"], ref, mark, data)
        return await decrypt_event(self.ring, found) if found.encrypted else found

    async def read(
        self, ref: RunRef, after: int = 0, limit: int | None = None, bytes_max: int | None = None
    ) -> list[Recorded]:
        looked: int | None = None
        while True:
            own = await self._read(ref, after, limit, bytes_max)
            end = await self._end_before_gap(ref, own, after)
            if end is None or end == looked:
                break
            if (cold := await self.cold_events(ref, end)) is not None:
                own = within([one for one in cold if one.sequence > after][:limit], bytes_max)
                break
            # Since the stream was read, the run was moved back or purged; or its events are lost.
            looked = end
        return await with_origin(self, ref, own, after, limit, bytes_max)

    async def _end_before_gap(self, ref: RunRef, items: Sequence[Recorded], after: int) -> int | None:
        """Return the sequence of a run's end, if events before it are missing that may be in cold storage.

        ``items`` are the events that the stream has after the sequence ``after``.
        """
        end = moved_end(items, after)
        only_end_known = bool(after) and end is not None and items[0].sequence == end
        if only_end_known and await self.next_sequence(self.subjects.run(ref), 1) != end:
            return None  # The stream has the events before it.
        return end

    async def _read(self, ref: RunRef, after: int, limit: int | None, bytes_max: int | None) -> list[Recorded]:
        found: list[Recorded] = []
        filter, size = self.subjects.run(ref), 0
        at_once = READ_BYTES_MAX if bytes_max is None else min(READ_BYTES_MAX, bytes_max)
        while True:
            batch = READ_BATCH if limit is None else min(READ_BATCH, limit - len(found))
            request = {"next_by_subj": filter, "seq": after + 1, "batch": batch, "max_bytes": at_once}
            messages, pending = await direct_get(self.nc, self.stream, request)
            for message in messages:
                headers = message.headers or {}
                subject, sequence = headers["Nats-Subject"], int(headers["Nats-Sequence"])
                item = decode_recorded(subject, sequence, ref, headers.get(MARK, ""), message.data)
                found.append(await decrypt_event(self.ring, item) if item.encrypted else item)
                size += len(message.data)
                if len(found) % READ_TOGETHER == 0:
                    await anyio.lowlevel.checkpoint()
            if not messages or not pending or len(found) == limit or is_full(size, bytes_max):
                return found
            after = found[-1].sequence

    async def cold_events(self, ref: RunRef, end: int | None = None) -> list[Recorded] | None:
        """Return the own events of a run from cold storage. Arguments and errors are those of `run_messages` there."""
        return await self.cold.events(ref, end, self.ring)

    def without_keys(self) -> "JetStreamLog":
        log = copy(self)
        log.ring = NoKeys()
        return log

    @asynccontextmanager
    async def follow(
        self, filter: str | Sequence[str], after: int | None = None
    ) -> AsyncGenerator[AsyncIterator[Recorded]]:
        filters = (filter,) if isinstance(filter, str) else filter
        feed = Feed(self.requests, self.subjects, self.stream, filters, after, self.ring)
        try:
            await feed.begin()
            with self.nc.back(feed.lose):
                run = self.subjects.parse_run_filter(filters[0]) if len(filters) == 1 and after is not None else None
                yield feed.events() if run is None else self._follow_run(run, after or 0, feed.events())
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(REQUEST_TIMEOUT_S), suppress(NatsError):
                await feed.close()

    async def _follow_run(self, ref: RunRef, after: int, events: AsyncIterator[Recorded]) -> AsyncIterator[Recorded]:
        """Yield the events of a run; those that are in cold storage before the one that follows them."""
        before: list[Recorded] = []
        async for item in events:
            if (end := await self._end_before_gap(ref, [*before, item], after)) is not None:
                for one in await self.cold_events(ref, end) or ():
                    if after < one.sequence < item.sequence:
                        yield one
            yield item
            before, after = [item], item.sequence

    # -- large values -------------------------------------------------------------------------------------------------

    async def put_blob(self, ref: RunRef, digest: str, data: bytes) -> None:
        await self._blobs.put(self.subjects.blob(ref, digest), data)

    async def get_blob(self, ref: RunRef, digest: str, bytes_max: int | None = None) -> bytes:
        """Return a large value as `LogReader.get_blob`, reading at most ``bytes_max`` bytes.

        :raises BlobTooLarge: if the value is larger
        """
        for again in range(BLOB_TRIES):
            if again:
                await anyio.sleep(BLOB_RETRY_S)
            found = await self._blobs.get(self.subjects.blob(ref, digest), bytes_max)
            if found is None:
                found = await self._cold_blob(ref, digest)
                if found is not None and bytes_max is not None and len(found) > bytes_max:
                    raise BlobTooLarge
            if found is not None:
                return await self._decrypted_value(ref, digest, found)
        raise KeyError(digest)

    async def stored_blob(self, ref: RunRef, digest: str) -> bytes:
        """Return a large value as it is stored: encrypted, if its run is.

        :raises KeyError: if the value, or a piece of it, is missing
        """
        found = await self._blobs.get(self.subjects.blob(ref, digest)) or await self._cold_blob(ref, digest)
        if found is None:
            raise KeyError(digest)
        return found

    async def _cold_blob(self, ref: RunRef, digest: str) -> bytes | None:
        messages = await self.cold.run_messages(ref)
        return value_of(messages, digest) if messages is not None else None

    async def _decrypted_value(self, ref: RunRef, digest: str, stored: bytes) -> bytes:
        if (name := key_of_value(stored)) is None:
            return stored
        key = await self.ring.get(ref.tenant, name)
        if key is Lack.MISSING:
            raise NoAnswer(f"the key {name!r} is missing")
        if key is Lack.DESTROYED:
            raise KeyError(digest)
        try:
            return key.decrypted_value(stored)
        except Undecipherable:
            raise KeyError(digest) from None


async def open_log(
    nc: ReconnectingClient,
    subjects: Subjects,
    *,
    partitions: int,
    replicas: int = 1,
    group_commit: bool = False,
    ours: bool = False,
) -> JetStreamLog:
    """Open the stream of the log; create it if it does not exist.

    Raises as `callboard.bus.nats.stream.ensure_stream`, which also describes ``ours``.
    """
    log = JetStreamLog(nc, subjects, stream_of(subjects), partitions, group_commit=group_commit, replicas=replicas)
    made = await ensure_stream(log.requests, subjects, partitions=partitions, replicas=replicas, ours=ours)
    log.store = store_of(log.stream, made.created)
    log.fast = made.fast
    await log.clock.measure(log.requests, log.stream)
    return log


def _each(beside: Beside) -> Sequence[Alarm | RunMessage | SuccessorStart | Shares | FirstCommand]:
    return beside.all if isinstance(beside, RunMessages) else [beside]


def _guarding_run(ref: RunRef, beside: Beside) -> RunRef | None:
    """Return the run whose purge prevents that ``beside`` is stored with the events of a run, or None."""
    match beside:
        case Shares(origin=origin):
            return origin
        case FirstCommand():
            return ref
        case _:
            return None
