"""Following: a durable consumer of run events as a checkpoint, read in bounded batches.

Events that no reader has taken stay in the stream. An acknowledged event is finished for all readers of the consumer.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import structlog
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded, unreadable
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.queue import redeliver_now

logger = structlog.get_logger(__name__)

BATCH_EVENTS_MAX = 512
BATCH_BYTES_MAX = 8 * 1024 * 1024
ACK_WAIT_S = 30.0
"""The time after which a batch is delivered again if its reader has disappeared unnoticed."""

IDLE_WAIT_S = 30.0
"""The time that a request waits for the first event of a batch."""

HEARTBEAT_S = 1.0
"""The interval of heartbeats during a request. After three missed ones, the request is considered lost."""

LINGER_S = 0.25
"""The time that a batch waits for more events after its first."""

CLOSE_WAIT_S = 2.0
CAUGHT_UP_POLL_S = 0.05

_NS = 1_000_000_000
_NO_CONSUMER = 10014


class DeliveredEvent(Struct, frozen=True):
    """An event from the stream, and the subject for its acknowledgement."""

    recorded: Recorded
    reply: str


class Consumption:
    """A reader of a durable consumer. Create it with `consumption`."""

    def __init__(self, log: JetStreamLog, durable: str, inbox: str) -> None:
        self._log = log
        self._inbox = inbox
        self._subject = log.nc.js(f"CONSUMER.MSG.NEXT.{log.stream}.{durable}")
        self._durable = durable
        self._taken: list[DeliveredEvent] = []
        self._status: str | None = None
        self._news = anyio.Event()

    async def batch(self) -> list[DeliveredEvent]:
        """Wait for events, and return about `BATCH_EVENTS_MAX` of them at most; none after `IDLE_WAIT_S` without any.

        :raises NoAnswer: if the server does not serve this consumer
        """
        if not self._taken:
            first = {"batch": 1, "expires": int(IDLE_WAIT_S * _NS), "idle_heartbeat": int(HEARTBEAT_S * _NS)}
            await self._pull(first, 1)
        if self._taken:
            rest = {"batch": BATCH_EVENTS_MAX - 1, "max_bytes": BATCH_BYTES_MAX, "expires": int(LINGER_S * _NS)}
            await self._pull(rest, BATCH_EVENTS_MAX)
        taken, self._taken = self._taken, []
        return taken

    async def acknowledge(self, taken: Sequence[DeliveredEvent]) -> None:
        """Move the checkpoint past these events. If an acknowledgement is lost, its event is delivered again."""
        for each in taken:
            await self._log.nc.publish(each.reply, b"+ACK")

    async def give_back(self) -> None:
        """Request redelivery of the events that were received but not returned by `batch`."""
        for each in self._taken:
            await self._log.nc.publish(each.reply, b"-NAK")
        self._taken = []

    async def _pull(self, request: dict[str, int], until: int) -> None:
        """Send one request. Return when there are ``until`` events, or when the request has ended."""
        self._status = None
        try:
            await self._log.nc.publish(self._subject, msgspec.json.encode(request), reply=self._inbox)
        except NatsError as error:
            raise NoAnswer(f"consumer {self._durable}: {error}") from error
        while len(self._taken) < until and self._status is None:
            self._news = anyio.Event()
            with anyio.move_on_after(3 * HEARTBEAT_S) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                return
        # 404 and 408: the request has expired. All other statuses (409, 503) are errors.
        if self._status not in (None, "404", "408") and not self._taken:
            raise NoAnswer(f"consumer {self._durable}: status {self._status}")

    async def take(self, message: Msg) -> None:
        """Receive a message of the server, as the subscription's callback."""
        # A message with another subject than the inbox is one of the stream, even if it has a header ``Status``.
        status = (message.headers or {}).get("Status") if message.subject == self._inbox else None
        if status is None:
            await self._take_event(message)
        elif status != "100":
            self._status = status
        self._news.set()

    async def _take_event(self, message: Msg) -> None:
        try:
            ref = self._log.subjects.parse_event(message.subject).ref
        except ValueError as error:
            logger.error("message skipped: its subject is not an event's", subject=message.subject, error=str(error))
            await self._log.nc.publish(message.reply, b"+TERM")
            return
        mark = (message.headers or {}).get(MARK, "")
        item = decode_recorded(message.subject, message.metadata.sequence.stream, ref, mark, message.data)
        if not item.readable:
            logger.error("message skipped: it is not an event", subject=message.subject, error=unreadable(item).reason)
            await self._log.nc.publish(message.reply, b"+TERM")
            return
        self._taken.append(DeliveredEvent(item, message.reply))


@asynccontextmanager
async def consumption(
    log: JetStreamLog, durable: str, filter: str, *, orphaned: bool = False
) -> AsyncGenerator[Consumption]:
    """Read the events that match a filter, starting where the last reader of this durable consumer stopped.

    Pass ``orphaned`` if the last reader is gone. The events that it left unacknowledged are then delivered again at
    once.

    :raises NoAnswer: if JetStream does not answer, or rejects the request
    """
    pending = await ensure_durable(log, durable, filter)
    if orphaned and pending:
        await redeliver_now(log.requests, log.stream, durable)
    inbox = log.nc.new_inbox()
    reader = Consumption(log, durable, inbox)
    subscription = await log.nc.subscribe(inbox, cb=reader.take)
    try:
        yield reader
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_WAIT_S):
            try:
                # Drain, so that few messages are lost in transit. Unread events go to the next reader at once.
                await subscription.drain()
                await reader.give_back()
            except NatsError as error:
                logger.warning(
                    "cannot return unread events now; they are delivered again later",
                    consumer=durable,
                    error=str(error),
                )


async def ensure_durable(log: JetStreamLog, durable: str, filter: str) -> int:
    """Ensure that a durable consumer exists. A new one starts with the events from now on.

    Return the number of its events that were delivered and are not acknowledged.

    :raises NoAnswer: if JetStream does not answer, or rejects the request
    """
    found = await api(log.requests, f"CONSUMER.INFO.{log.stream}.{durable}", {})
    if found.get("error", {}).get("err_code") == _NO_CONSUMER:
        config: dict[str, Any] = {
            "durable_name": durable,
            "filter_subjects": [filter],
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_S * _NS),
            "max_ack_pending": 4 * BATCH_EVENTS_MAX,
            "max_deliver": -1,
        }
        body = {"stream_name": log.stream, "config": config, "action": ""}
        found = await api(log.requests, f"CONSUMER.CREATE.{log.stream}.{durable}", body)
    if "error" in found:
        raise NoAnswer(f"consumer {durable}: {found['error'].get('description')}")
    return found.get("num_ack_pending", 0)


async def until_caught_up(log: JetStreamLog, durable: str) -> None:
    """Return when every event up to now has been acknowledged.

    :raises NoAnswer: if JetStream does not answer
    """
    while True:
        found = await api(log.requests, f"CONSUMER.INFO.{log.stream}.{durable}", {})
        if not found.get("num_pending") and not found.get("num_ack_pending"):
            return
        await anyio.sleep(CAUGHT_UP_POLL_S)
