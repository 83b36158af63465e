"""The feed: events of the stream in order, which an ephemeral consumer sends as soon as they are stored."""

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from callboard.bus.log.encryption import KeyRing
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded, decrypt_event
from callboard.bus.nats.ephemeral_consumer import HEARTBEAT_S, NS, RETRY_MAX_S, RETRY_S, SILENCE_S, EphemeralReader
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import Subjects
from callboard.lib.backoff import backoff_s

FEED_EVENTS_MAX = 4_096
FEED_BYTES_MAX = 8 * 1024 * 1024
"""Maximum number, and bytes, of events in memory that a slow reader has not read yet. When they are exceeded, the
server stops sending, after at most 32 MiB that it sends before it asks (flow control)."""

MARK = "Cb-Id"

RESTORED = "~"
"""Suffix of the ids of events that were moved back from cold storage to the stream."""

_STALLED = "Nats-Consumer-Stalled"
_LAST = "Nats-Last-Consumer"


class Feed(EphemeralReader):
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
        super().__init__(requests, stream, filters, after)
        self._subjects = subjects
        self._keys = keys
        self._events: deque[Recorded] = deque()
        self.held_bytes = 0
        """Bytes of the events that are in memory."""
        self._consumer: _Consumer | None = None
        self._news = anyio.Event()
        self._room = anyio.Event()
        self._closed = False

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
        self._closed = True
        self._room.set()
        await super().close()

    def lose(self) -> None:
        super().lose()
        self._news.set()

    async def _subscribe(self, inbox: str, name: str) -> Subscription:
        consumer = self._consumer = _Consumer(self, inbox)
        return await self._requests.nc.subscribe(inbox, cb=consumer.take)

    def _options(self, inbox: str) -> Mapping[str, Any]:
        return {"deliver_subject": inbox, "flow_control": True, "idle_heartbeat": int(HEARTBEAT_S * NS)}

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

    async def take(self, message: Msg) -> None:
        await self._feed.take(self, message)
