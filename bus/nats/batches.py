"""Batches: messages of the stream in order, which the server sends together when the reader asks for them.

A reader that may be late asks now and then. It costs the server and this process less than a feed, which sends every
message by itself, as soon as it is stored. While there are no messages, the reader can wait for the next one.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import anyio
import msgspec
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded
from callboard.bus.nats.ephemeral_consumer import HEARTBEAT_S, NS, SILENCE_S, EphemeralReader
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.requests import REQUEST_TIMEOUT_S

BATCH_MAX = 500
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Maximum number of messages, and of their bytes, in one batch. A larger message is a batch by itself."""

WAIT_S = 30.0
"""How long the server holds a request to wait for the next message."""

UNUSED_S = 60.0
"""The server removes a consumer from which nothing was requested for this time."""

_HEARTBEAT = b"100"
_COMPLETED = b"409 Batch Completed"
"""A status behind the last message of a batch, which the reader counts itself. It may arrive before that message, or
after the next request."""

_ENDS = (b"404", b"408")
"""Statuses of the server: there are no messages now, or the request has expired."""

_TOO_LARGE = b"409 Message Size Exceeds MaxBytes"

_find_mark = re.compile(rb"\r\n" + MARK.encode() + rb": ?([^\r\n]*)").search


class StoredBytes(NamedTuple):
    """A message of the stream that is not decoded yet, with the id that its writer gave it."""

    sequence: int
    subject: str
    id: str
    data: bytes


class Batches(EphemeralReader):
    """Reads the messages that match one of the filters, after a stream sequence. Open it with `open_batches`."""

    def __init__(self, log: JetStreamLog, filters: Sequence[str], after: int) -> None:
        super().__init__(log.requests, log.stream, filters, after)
        self.requested = 0
        """Number of requests for messages."""
        self._inbox = self._name = ""
        self._found: list[StoredBytes] = []
        self._delivered = 0
        self._wanted = 0
        self._status = b""
        self._news = anyio.Event()
        self._bounded = True

    async def read(self) -> list[StoredBytes]:
        """Return the next messages; none if there are none now.

        :raises NoAnswer: if the connection is closed
        """
        if self._gone:
            await self._renew()
        size = {"max_bytes": BATCH_BYTES_MAX} if self._bounded else {}
        await self._pull({"batch": BATCH_MAX if size else 1, "no_wait": True, **size}, BATCH_MAX if size else 1)
        found, self._found = self._found, []
        # Without a bound for once: no batch has room for the next message.
        self._bounded = bool(found) or self._status != _TOO_LARGE
        return found

    async def wait(self) -> None:
        """Wait for the next message, for `WAIT_S` at most."""
        if not self._found and not self._gone and self._bounded:
            await self._pull({"batch": 1, "expires": int(WAIT_S * NS), "idle_heartbeat": int(HEARTBEAT_S * NS)}, 1)

    def lose(self) -> None:
        super().lose()
        self._news.set()

    async def close(self) -> None:
        await super().close()
        # Nobody waits for the answer. A consumer that is not removed now is unused, and removed later.
        nc = self._requests.nc
        await nc.publish(nc.js(f"CONSUMER.DELETE.{self._stream}.{self._name}"), b"", self._inbox)

    async def _pull(self, request: Mapping[str, Any], count: int) -> None:
        """Send a request, and return when it has been answered, or the consumer is lost."""
        self.requested += 1
        self._wanted, self._status = len(self._found) + count, b""
        nc, subject = self._requests.nc, f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        try:
            await nc.publish(nc.js(subject), msgspec.json.encode(request), self._inbox)
        except NatsError:
            self.lose()
        while len(self._found) < self._wanted and not self._status and not self._gone:
            self._news = anyio.Event()
            with anyio.move_on_after(SILENCE_S) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                self.lose()
        if self._status and not self._status.startswith(_ENDS) and self._status != _TOO_LARGE:
            self.lose()

    async def _subscribe(self, inbox: str, name: str) -> Subscription:
        self._inbox, self._name, self._delivered = inbox, name, 0
        return await self._requests.nc.subscribe_raw(inbox, partial(self._take, inbox))

    def _options(self, inbox: str) -> Mapping[str, Any]:
        return {"inactive_threshold": int(UNUSED_S * NS)}

    def _take(self, inbox: str, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        """Take a message of a consumer. Late messages of an earlier one are ignored."""
        if inbox != self._inbox:
            return
        if not reply:
            # Not a message of the stream: those have an address for their acknowledgement.
            status = (headers or b"").partition(b"\r\n")[0].partition(b" ")[2].strip()
            if not status.startswith(_HEARTBEAT) and status != _COMPLETED:
                self._status = status
            self._news.set()
            return
        # $JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.delivered.time.pending[.token]
        parts = reply.split(b".")
        at = 5 if len(parts) == 9 else 7
        sequence, delivered = int(parts[at]), int(parts[at + 1])
        if delivered != self._delivered + 1:
            self.lose()
            return
        self._delivered, self._after = delivered, sequence
        mark = _find_mark(headers or b"")
        id = mark[1].decode(errors="replace").strip() if mark is not None else ""
        self._found.append(StoredBytes(sequence, subject.decode(errors="replace"), id, data))
        if len(self._found) >= self._wanted:
            self._news.set()


@asynccontextmanager
async def open_batches(log: JetStreamLog, filters: Sequence[str], after: int) -> AsyncGenerator[Batches]:
    """Read the messages of a log that match one of the filters, after a stream sequence, during the block.

    :raises NoAnswer: if the log does not answer
    """
    batches = Batches(log, filters, after)
    try:
        await batches.begin()
        with log.nc.back(batches.lose):
            yield batches
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(REQUEST_TIMEOUT_S), suppress(NatsError, NoAnswer):
            await batches.close()


def recorded_of(log: JetStreamLog, message: StoredBytes) -> Recorded | None:
    """Decode a message of a log; None if it is not below the subjects of events. It is not decrypted."""
    try:
        ref = log.subjects.parse_event(message.subject).ref
    except ValueError:
        return None
    return decode_recorded(message.subject, message.sequence, ref, message.id, message.data)
