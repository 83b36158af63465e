"""The feed: events of the stream in order, from an ephemeral consumer that is created again whenever it is lost.

Such a consumer is in the memory of one server and is lost when that server stops. The new consumer begins after the
last event that arrived, so no event is missing or comes twice. It is created as soon as the connection is back. If a
consumer is lost while the connection is up, its heartbeats stop, and the feed replaces it.
"""

import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from callboard.bus.log.encryption import KeyRing
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded, decrypt_event
from callboard.bus.nats.jetstream_api import LOSS_PATIENCE_S, api
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import Subjects
from callboard.lib.backoff import backoff_s

FEED_EVENTS_MAX = 4_096
FEED_BYTES_MAX = 8 * 1024 * 1024
"""Maximum number, and bytes, of events in memory that a slow reader has not read yet. When they are exceeded, the
server stops sending, after at most 32 MiB that it sends before it asks (flow control)."""

HEARTBEAT_S = 1.0
SILENCE_S = 3 * HEARTBEAT_S
"""An idle consumer sends a heartbeat in each interval. After `SILENCE_S` without any message it is considered lost."""

RETRY_S = 0.2
RETRY_MAX_S = 5.0
"""First and longest pause before another attempt to create a consumer."""

MARK = "Cb-Id"

RESTORED = "~"
"""Suffix of the ids of events that were moved back from cold storage to the stream."""

_STALLED = "Nats-Consumer-Stalled"
_LAST = "Nats-Last-Consumer"
_NS = 1_000_000_000


class Feed:
    """Follows the events that match one of the filters, after a stream sequence (None: from now on).

    Events are decrypted if their key is among the ``keys``.
    """

    def __init__(
        self,
        requests: Requests,
        subjects: Subjects,
        stream: str,
        filters: Sequence[str],
        after: int | None,
        keys: KeyRing,
    ) -> None:
        self._requests = requests
        self._subjects = subjects
        self._stream = stream
        self._filters = filters
        self._after = after
        self._keys = keys
        self._events: deque[Recorded] = deque()
        self.held_bytes = 0
        """Bytes of the events that are in memory."""
        self._consumer: _Consumer | None = None
        self._news = anyio.Event()
        self._room = anyio.Event()
        self._gone = False
        self._closed = False

    async def begin(self) -> None:
        """Create the first consumer.

        :raises NoAnswer: if it could not be created for `LOSS_PATIENCE_S` seconds
        """
        await self._renew(anyio.current_time() + LOSS_PATIENCE_S)

    async def events(self) -> AsyncIterator[Recorded]:
        """Yield events as they arrive, without end.

        :raises NoAnswer: if the connection is closed
        """
        while True:
            while self._events:
                event = self._events.popleft()
                self.held_bytes -= len(event.data)
                self._room.set()
                yield await self._decrypt(event) if event.encrypted else event
            if self._gone:
                await self._renew()
                continue
            self._news = anyio.Event()
            with anyio.move_on_after(SILENCE_S) as silence:
                await self._news.wait()
            self._gone = self._gone or silence.cancelled_caught

    async def _decrypt(self, event: Recorded) -> Recorded:
        """:raises NoAnswer: if the connection is closed"""
        tried = 0
        while True:
            try:
                return await decrypt_event(self._keys, event)
            except NoAnswer:
                if self._requests.nc.is_closed:
                    raise
            tried += 1
            await anyio.sleep(backoff_s(tried, RETRY_S, RETRY_MAX_S))

    async def close(self) -> None:
        """Stop following."""
        self._closed = True
        self._room.set()
        await self._leave()

    async def _leave(self) -> None:
        """Unsubscribe from the current consumer. The server then removes it, because it has no subscriber."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None and consumer.subscription is not None:
            await consumer.subscription.unsubscribe()

    def lose(self) -> None:
        """Note that the consumer is lost, or that messages of it are missing."""
        self._gone = True
        self._news.set()

    async def _renew(self, until: float | None = None) -> None:
        """Create a consumer that continues after the last event.

        :raises NoAnswer: if the connection is closed, or if this failed until the instant ``until``
        """
        tried = 0
        while True:
            self._gone = False
            try:
                await self._leave()
                await self._make()
                return
            except (NatsError, NoAnswer) as error:
                # A closed connection does not reconnect.
                if self._requests.nc.is_closed or (until is not None and anyio.current_time() > until):
                    raise NoAnswer(f"follow {', '.join(self._filters)}: {error}") from error
            tried += 1
            await anyio.sleep(backoff_s(tried, RETRY_S, RETRY_MAX_S))

    async def _make(self) -> None:
        nc = self._requests.nc
        if self._after is None:
            # If the first consumer is lost before any event, the next one still begins at the same sequence.
            self._after = int((await self._api(f"STREAM.INFO.{self._stream}", {}))["state"]["last_seq"])
        inbox, name = nc.new_inbox(), secrets.token_hex(8)
        consumer = self._consumer = _Consumer(self, inbox)
        consumer.subscription = await nc.subscribe(inbox, cb=consumer.take)
        config = {
            "name": name,
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "filter_subjects": list(self._filters),
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
            "num_replicas": 1,
            "mem_storage": True,
        }
        await self._api(f"CONSUMER.CREATE.{self._stream}.{name}", {"stream_name": self._stream, "config": config})

    async def _api(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await api(self._requests, verb, body)
        if "error" in answer:
            raise NoAnswer(str(answer["error"].get("description")))
        return answer

    # -- messages of a consumer ---------------------------------------------------------------------------------------

    async def take(self, consumer: "_Consumer", message: Msg) -> None:
        """Handle a message of the current consumer; ignore late messages of an earlier one."""
        if consumer is not self._consumer:
            return
        headers = message.headers or {}
        if message.subject == consumer.inbox:
            # Not a message of the stream, but a heartbeat or a flow control request of the server. It arrives after all
            # messages that were sent before it.
            if ask := message.reply or headers.get(_STALLED):
                await self._requests.nc.publish(ask)
            self._look(int(headers.get(_LAST, consumer.taken)) != consumer.taken)
            return
        sequence = message.metadata.sequence
        if sequence.consumer != consumer.taken + 1:
            self._look(missed=True)
            return
        consumer.taken, self._after = sequence.consumer, sequence.stream
        await self._take_event(message, headers.get(MARK, ""), sequence.stream)

    def _look(self, missed: bool) -> None:
        if missed:
            self.lose()
        else:
            self._news.set()

    async def _take_event(self, message: Msg, mark: str, sequence: int) -> None:
        try:
            ref = self._subjects.parse_event(message.subject).ref
        except ValueError:
            # Another application's message: its subject is below our prefix, but not the subject of an event.
            return
        self._events.append(decode_recorded(message.subject, sequence, ref, mark, message.data))
        self.held_bytes += len(message.data)
        self._news.set()
        while self._is_full() and not self._closed:
            self._room = anyio.Event()
            await self._room.wait()

    def _is_full(self) -> bool:
        return len(self._events) >= FEED_EVENTS_MAX or self.held_bytes >= FEED_BYTES_MAX


class _Consumer:
    """One of a feed's successive consumers, and the number of its messages that have arrived."""

    def __init__(self, feed: Feed, inbox: str) -> None:
        self._feed = feed
        self.inbox = inbox
        self.taken = 0
        self.subscription: Subscription | None = None

    async def take(self, message: Msg) -> None:
        await self._feed.take(self, message)
