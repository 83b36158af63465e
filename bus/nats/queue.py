"""Queues: durable pull consumers of the stream, whose deliveries may be acknowledged at any later time.

A worker may hold a delivery for days, if it reports that regularly (`Delivery.hold`). The number of held deliveries is
not limited, so a cancellation is delivered no matter how many starts are held.
"""

import datetime as dt
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec
import structlog
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.commands import TOLD_HEADER
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.requests import Requests

log = structlog.get_logger(__name__)

PULL_MESSAGES = 256
PULL_BYTES_MAX = 8 * 1024 * 1024
"""Maximum number of messages, and of their bytes, per pull. With too much pending, the server closes the connection."""

PULL_EXPIRES_S = 30.0
IDLE_HEARTBEAT_S = 5.0
"""A pull request is considered lost after three intervals without a heartbeat."""

PULL_RETRY_S = 0.25
"""Pause after a pull that the server refused."""

_HAS_ITS_BYTES = "Message Size Exceeds MaxBytes"
_HAS_ITS_MESSAGES = "Batch Completed"
_SHUTS_DOWN = "Server Shutdown"
_NS = 1_000_000_000

Replies = Callable[[str, bytes], None]
"""Receives a subject and a body, and publishes them as soon as possible."""


class Delivery(Struct, frozen=True):
    """A message of a queue. ``deliveries`` counts from 1; ``time_ns`` is when it was stored in the stream."""

    subject: str
    data: bytes
    headers: dict[str, str]
    sequence: int
    deliveries: int
    time_ns: int
    reply: str
    _send: Replies

    @property
    def stored_time(self) -> dt.datetime:
        """When the server stored the message; for a routed command, when it stored the published one."""
        return stored_at(self.headers, self.time_ns)

    def ack(self) -> None:
        """Acknowledge the message: it is not delivered again."""
        self._send(self.reply, b"+ACK")

    def nak(self, delay_s: float = 0.0) -> None:
        """Request another delivery after a delay."""
        body = b'-NAK {"delay": %d}' % int(delay_s * _NS) if delay_s else b"-NAK"
        self._send(self.reply, body)

    def hold(self) -> None:
        """Report that the message is being handled: its acknowledgement timeout starts again."""
        self._send(self.reply, b"+WPI")


def stored_at(headers: Mapping[str, str], time_ns: int) -> dt.datetime:
    """Return when the server stored a message; for a routed command, when it stored the published one."""
    told_ns = headers.get(TOLD_HEADER, "").partition(" ")[2]
    found_ns = int(told_ns) if told_ns.isascii() and told_ns.isdigit() else time_ns
    return _EPOCH + dt.timedelta(microseconds=found_ns // 1_000)


_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)

OUTBOX_MESSAGES_MAX = 100_000
"""Maximum number of messages that wait to be published. If there are more, the server is down or too slow."""


class Outbox:
    """Publishes the messages of synchronous code, in order.

    Messages are dropped when it is full, and messages in flight are lost when the connection breaks. Lost
    acknowledgements lead to redeliveries; lost live progress is not sent again.
    """

    def __init__(self, nc: ReconnectingClient) -> None:
        self._nc = nc
        self._outgoing: deque[tuple[str, bytes, dict[str, str] | None]] = deque()
        self._arrived = anyio.Event()
        self._full = False

    def send(self, subject: str, body: bytes, headers: dict[str, str] | None = None, *, within_s: float = 0.0) -> None:
        """Publish a message soon, or ``within_s`` seconds together with others."""
        if not self._outgoing and self._nc.enqueue(subject, body, headers, within_s=within_s):
            return
        if len(self._outgoing) >= OUTBOX_MESSAGES_MAX:
            if not self._full:
                log.warning("outbox is full; messages are dropped", messages=OUTBOX_MESSAGES_MAX, subject=subject)
            self._full = True
            return
        self._outgoing.append((subject, body, headers))
        self._arrived.set()

    async def run(self) -> None:
        while True:
            await self.flush()
            self._arrived = anyio.Event()
            if not self._outgoing:
                await self._arrived.wait()

    async def flush(self) -> None:
        """Publish all messages that are waiting."""
        while self._outgoing:
            subject, body, headers = self._outgoing[0]
            try:
                await self._nc.publish(subject, body, headers=headers)
            except NatsError as error:
                # Lost acknowledgements lead to redeliveries; lost live progress is not sent again.
                log.warning("could not publish", subject=subject, error=str(error))
            self._outgoing.popleft()
        self._full = False


async def ensure_consumer(
    requests: Requests,
    stream: str,
    durable: str,
    filters: Sequence[str],
    ack_wait_s: float,
    *,
    begins: Literal["all", "new"] = "all",
    idle_s: float | None = None,
) -> int:
    """Create or update a durable consumer; return how many of its deliveries are not acknowledged.

    A new consumer ``begins`` with all stored messages, or with new ones only. The server deletes a consumer that was
    not used for ``idle_s`` seconds.

    :raises NoAnswer: if JetStream does not answer or refuses
    """
    return await _create(requests, stream, _configure(durable, filters, ack_wait_s, begins, idle_s))


async def ensure_consumers(
    requests: Requests, stream: str, filters: Mapping[str, Sequence[str]], ack_wait_s: float
) -> dict[str, int]:
    """Create or update durable consumers; return of each how many deliveries are not acknowledged.

    Those that exist as wanted are found with one request: the server writes a file, and syncs it, for each request to
    create a consumer, even if nothing changes.

    :raises NoAnswer: if JetStream does not answer or refuses
    """
    existing = {one["name"]: one for one in await list_consumers(requests, stream)}
    held: dict[str, int] = {}

    async def create(config: Mapping[str, Any]) -> None:
        held[config["durable_name"]] = await _create(requests, stream, config)

    async with anyio.create_task_group() as tasks:
        for durable, subjects in filters.items():
            config, found = _configure(durable, subjects, ack_wait_s), existing.get(durable)
            if found is not None and config.items() <= found["config"].items():
                held[durable] = found.get("num_ack_pending", 0)
            else:
                tasks.start_soon(create, config)
    return held


async def list_consumers(requests: Requests, stream: str) -> list[dict[str, Any]]:
    """Return the server's descriptions of all consumers of a stream.

    :raises NoAnswer: if JetStream does not answer or refuses
    """
    found: list[dict[str, Any]] = []
    while True:
        answer = await api(requests, f"CONSUMER.LIST.{stream}", {"offset": len(found)})
        if "error" in answer:
            raise NoAnswer(str(answer["error"].get("description")))
        page = answer.get("consumers") or []
        found += page
        if not page or len(found) >= answer["total"]:
            return found


def _configure(
    durable: str,
    filters: Sequence[str],
    ack_wait_s: float,
    begins: Literal["all", "new"] = "all",
    idle_s: float | None = None,
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "durable_name": durable,
        "filter_subjects": list(filters),
        "deliver_policy": begins,
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * _NS),
        "max_ack_pending": -1,
        "max_deliver": -1,
    }
    if idle_s is not None:
        config["inactive_threshold"] = int(idle_s * _NS)
    return config


async def _create(requests: Requests, stream: str, config: Mapping[str, Any]) -> int:
    durable = config["durable_name"]
    body = {"stream_name": stream, "config": config, "action": ""}
    answer = await api(requests, f"CONSUMER.CREATE.{stream}.{durable}", body)
    if "error" in answer:
        raise NoAnswer(f"consumer {durable}: {answer['error'].get('description')}")
    return answer.get("num_ack_pending", 0)


async def attend(
    nc: ReconnectingClient,
    requests: Requests,
    stream: str,
    durable: str,
    filters: Sequence[str],
    take: Callable[[Delivery], Coroutine[Any, Any, None]],
    send: Replies,
    ack_wait_s: float,
) -> None:
    """Read a durable consumer, which other workers may read too, until cancelled. Each delivery is a separate task.

    :raises NoAnswer: if the consumer can be neither created nor updated
    """
    await ensure_consumer(requests, stream, durable, filters, ack_wait_s)
    async with anyio.create_task_group() as tasks:

        def deliver(delivery: Delivery) -> None:
            tasks.start_soon(take, delivery)

        await Puller(nc, stream, durable, deliver, send).run()


async def pending_acks(requests: Requests, stream: str, durable: str) -> int:
    """Return how many of a consumer's deliveries are not acknowledged.

    :raises NoAnswer: if JetStream does not answer
    """
    return (await _info(requests, stream, durable))["num_ack_pending"]


async def redeliver_now(requests: Requests, stream: str, durable: str) -> None:
    """Have all unacknowledged deliveries delivered again at once. They did not arrive, or their worker has stopped.

    :raises NoAnswer: if JetStream does not answer
    """
    answer = await api(requests, f"CONSUMER.RESET.{stream}.{durable}", {})
    if "error" in answer:
        log.warning("consumer could not be reset", consumer=durable, error=answer["error"].get("description"))


async def ack_floor(requests: Requests, stream: str, durable: str) -> int:
    """Return a stream sequence up to which all messages of a consumer are acknowledged.

    It may be too small, because messages that the consumer does not match do not advance it.

    :raises NoAnswer: if JetStream does not answer
    """
    return (await _info(requests, stream, durable))["ack_floor"]["stream_seq"]


async def _info(requests: Requests, stream: str, durable: str) -> dict[str, Any]:
    answer = await api(requests, f"CONSUMER.INFO.{stream}.{durable}", {})
    if "error" in answer:
        raise NoAnswer(f"consumer {durable}: {answer['error'].get('description')}")
    return answer


class Puller:
    """Pulls from one consumer and passes each delivery to a function that must not block."""

    def __init__(
        self, nc: ReconnectingClient, stream: str, durable: str, deliver: Callable[[Delivery], None], send: Replies
    ) -> None:
        self._nc = nc
        self._stream = stream
        self._durable = durable
        self._deliver = deliver
        self._send = send
        self._left = 0
        self._turned_down = False
        self._inbox = ""
        self._refusal: str | None = None
        self._refusals = 0
        self._news = anyio.Event()

    async def run(self, room: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint) -> None:
        """Pull until cancelled. Before each pull, wait until there is ``room`` for the messages of one pull."""
        inbox = self._inbox = self._nc.new_inbox()
        subscription = await self._nc.subscribe(inbox, cb=self._take)
        request = msgspec.json.encode(
            {
                "batch": PULL_MESSAGES,
                # A message larger than this would never be delivered.
                "max_bytes": max(PULL_BYTES_MAX, 2 * self._nc.max_payload),
                "expires": int(PULL_EXPIRES_S * _NS),
                "idle_heartbeat": int(IDLE_HEARTBEAT_S * _NS),
            }
        )
        subject = self._nc.js(f"CONSUMER.MSG.NEXT.{self._stream}.{self._durable}")
        try:
            with self._nc.back(self._forget):
                while True:
                    await room()
                    self._left = PULL_MESSAGES
                    self._turned_down = False
                    await self._pull(subject, request, inbox)
                    if self._turned_down:
                        await anyio.sleep(PULL_RETRY_S)
        finally:
            # Handle messages in flight: other workers would get them only after the acknowledgement timeout.
            await self._nc.hear_out(subscription)

    def _forget(self) -> None:
        """Forget the current pull request, because the server loses it with the connection."""
        self._left = 0
        self._news.set()

    async def _pull(self, subject: str, request: bytes, inbox: str) -> None:
        """Send one pull request; return when it is fulfilled or has expired, or when the server is silent."""
        try:
            await self._nc.publish(subject, request, reply=inbox)
        except NatsError as error:
            log.warning("could not pull", consumer=self._durable, error=str(error))
            self._turned_down = True
            return
        while self._left > 0:
            self._news = anyio.Event()
            with anyio.move_on_after(3 * IDLE_HEARTBEAT_S) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                return

    async def _take(self, message: Msg) -> None:
        self._news.set()
        # Only a message on our inbox is a status of the server. A message of the stream may also have this header.
        status = (message.headers or {}).get("Status") if message.subject == self._inbox else None
        if status is not None:
            description = (message.headers or {}).get("Description")
            # We count the messages of a request ourselves, and send the next request before this status arrives.
            if status != "100" and description != _HAS_ITS_MESSAGES:
                # 404, 408, and a request that has reached its bytes: the request has ended. All others are refusals.
                over = status in ("404", "408") or description == _HAS_ITS_BYTES
                self._turned_down = not over
                self._left = 0
                # The connection's owner already logs that the server shuts down.
                self._note_refusal(None if over or description == _SHUTS_DOWN else f"{status} {description}")
            return
        self._left -= 1
        self._note_refusal(None)
        metadata = message.metadata
        self._deliver(
            Delivery(
                subject=message.subject,
                data=message.data,
                headers=dict(message.headers or {}),
                sequence=metadata.sequence.stream,
                deliveries=metadata.num_delivered or 1,
                time_ns=int(metadata.timestamp.timestamp() * 1_000_000) * 1_000,
                reply=message.reply,
                _send=self._send,
            )
        )

    def _note_refusal(self, refusal: str | None) -> None:
        """Log a refusal when it is repeated. A single one may be temporary."""
        self._refusals = self._refusals + 1 if refusal == self._refusal else 1
        self._refusal = refusal
        if refusal is not None and self._refusals == 2:
            log.warning("nothing is delivered", consumer=self._durable, reason=refusal)
