"""Following: how projections that serve the outside read the stream. One reader at a time, from where the last one stopped.

An `Office` is held by one of the processes that stand for it; a `Consumption` is a durable consumer whose
acknowledgements are the checkpoint, pulled in bounded batches, so that whatever is not taken waits in the stream.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import msgspec
import structlog
from msgspec import Raw
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus import payloads
from callboard.bus.events import Event, decode_event
from callboard.bus.jetstream import MARK, JetStreamLog, api
from callboard.bus.log import EventLog, Recorded, Unknown
from callboard.bus.queue import redeliver_now
from callboard.runtime.membership import Membership, owner

log = structlog.get_logger(__name__)

BATCH_EVENTS_MAX = 512
BATCH_BYTES_MAX = 8 * 1024 * 1024
ACK_WAIT_S = 30.0
"""A batch whose reader is gone comes back after so long, if nobody has noticed before."""

IDLE_WAIT_S = 30.0
"""How long one request waits for the first event of a batch."""

HEARTBEAT_S = 5.0
LINGER_S = 0.25
"""How long a batch waits for more events after its first."""

RETRY_PAUSE_S = 0.5
"""First pause after a failure; doubled up to `RETRY_PAUSE_MAX_S`."""

RETRY_PAUSE_MAX_S = 30.0

GRACE_S = 2.0
"""How long a reader that has to stop may take to finish what it has in hand."""

_NS = 1_000_000_000
_NO_CONSUMER = 10014


# -- an office --------------------------------------------------------------------------------------------------------


class Holder(Protocol):
    """Somebody who can hold an office."""

    async def run(self, orphaned: bool) -> None:
        """Serve until cancelled. ``orphaned``: whoever served before is gone, and has left things lying about."""
        ...

    def hurry(self) -> None:
        """What is in hand may be finished within `GRACE_S`; a cancellation follows."""
        ...


class Office:
    """Held by one of the processes that stand for it, chosen by rendezvous hashing over those that live.

    Views may differ for a moment, and then two hold it: a holder must be able to stand that.
    """

    def __init__(self, nc: Client, subject: str, name: str, holder: Holder) -> None:
        self._membership = Membership(nc, subject, name, self._changed)
        self._name = name
        self._holder = holder
        self._serving: anyio.CancelScope | None = None
        self._incumbent: str | None = None
        self._orphaned = False
        self._news = anyio.Event()

    async def run(self) -> None:
        """Stand for the office, and serve whenever it is ours, until cancelled."""
        # The others learn that we are gone only after we have finished what we had in hand.
        members = anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_within, members, self._membership.run)
            try:
                while True:
                    while self._incumbent != self._name:
                        self._news = anyio.Event()
                        await self._news.wait()
                    with anyio.CancelScope() as self._serving:
                        await self._holder.run(self._orphaned)
                    self._serving = None
            finally:
                members.cancel()

    def hurry(self) -> None:
        """Prepare for a cancellation, as `Holder.hurry`."""
        self._holder.hurry()

    def _changed(self) -> None:
        live = self._membership.live()
        before, self._incumbent = self._incumbent, owner(0, live)
        if before != self._incumbent:
            self._orphaned = before not in live if before else len(live) == 1
        if self._incumbent != self._name and self._serving is not None:
            self._holder.hurry()
            self._serving.cancel()
        self._news.set()


async def _within(scope: anyio.CancelScope, body: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await body()


async def persistently(what: str, body: Callable[[], Awaitable[None]]) -> None:
    """Run something that should never end, again whenever it fails: nothing that only watches may break the house."""
    pause = RETRY_PAUSE_S
    while True:
        started = anyio.current_time()
        try:
            await body()
        except Exception:
            log.exception("failed and starts again", what=what)
        if anyio.current_time() - started > RETRY_PAUSE_MAX_S:
            pause = RETRY_PAUSE_S
        await anyio.sleep(pause)
        pause = min(2 * pause, RETRY_PAUSE_MAX_S)


# -- a consumption ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """An event out of the stream, and where to acknowledge it."""

    recorded: Recorded
    reply: str


class Consumption:
    """A durable consumer of run events, read in batches. Use `consumption`."""

    def __init__(self, journal: JetStreamLog, durable: str, inbox: str) -> None:
        self._log = journal
        self._inbox = inbox
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{journal.stream}.{durable}"
        self._durable = durable
        self._taken: list[Taken] = []
        self._status: str | None = None
        self._news = anyio.Event()

    async def batch(self) -> list[Taken]:
        """Wait for events; return those that came, at most `BATCH_EVENTS_MAX`. Empty if the server had none for long.

        :raises Unknown: if the server does not serve this consumer
        """
        self._taken = []
        await self._pull({"batch": 1, "expires": int(IDLE_WAIT_S * _NS), "idle_heartbeat": int(HEARTBEAT_S * _NS)}, 1)
        if self._taken:
            rest = {"batch": BATCH_EVENTS_MAX - 1, "max_bytes": BATCH_BYTES_MAX, "expires": int(LINGER_S * _NS)}
            await self._pull(rest, BATCH_EVENTS_MAX)
        return self._taken

    async def acknowledge(self, taken: Sequence[Taken]) -> None:
        """Move the checkpoint beyond these events."""
        for each in taken:
            await self._log.nc.publish(each.reply, b"+ACK")

    async def _pull(self, request: dict[str, int], until: int) -> None:
        """Ask once; return when there are ``until`` events, or the request is over."""
        self._status = None
        try:
            await self._log.nc.publish(self._subject, msgspec.json.encode(request), reply=self._inbox)
        except NatsError as error:
            raise Unknown(f"consumer {self._durable}: {error}") from error
        while len(self._taken) < until and self._status is None:
            self._news = anyio.Event()
            with anyio.move_on_after(3 * HEARTBEAT_S) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                return
        if self._status not in (None, "404", "408") and not self._taken:
            raise Unknown(f"consumer {self._durable}: {self._status}")

    async def take(self, message: Msg) -> None:
        """Receive what the server sends; the subscription's callback."""
        status = (message.headers or {}).get("Status")
        if status is None:
            self._taken.append(Taken(_recorded(self._log, message), message.reply))
        elif status != "100":
            self._status = status
        self._news.set()


def _recorded(journal: JetStreamLog, message: Msg) -> Recorded:
    ref = journal.subjects.parse_event(message.subject).ref
    mark = (message.headers or {}).get(MARK, "")
    return Recorded(message.metadata.sequence.stream, ref, mark, message.data, decode_event(message.data))


@asynccontextmanager
async def consumption(
    journal: JetStreamLog, durable: str, filter: str, *, orphaned: bool = False
) -> AsyncGenerator[Consumption]:
    """Read the events that match a filter, from where this durable's last reader stopped; the first begins now.

    ``orphaned`` says that the last reader is gone, so that what it left unacknowledged is delivered again at once.

    :raises Unknown: if JetStream does not answer, or refuses
    """
    pending = await _ensure(journal, durable, filter)
    if orphaned and pending:
        await redeliver_now(journal.requests, journal.stream, durable)
    inbox = journal.nc.new_inbox()
    reader = Consumption(journal, durable, inbox)
    subscription = await journal.nc.subscribe(inbox, cb=reader.take)
    try:
        yield reader
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE_S):
            await subscription.unsubscribe()


async def _ensure(journal: JetStreamLog, durable: str, filter: str) -> int:
    """Make sure that the consumer is there; return how many of its events are out and unacknowledged."""
    found = await api(journal.requests, f"CONSUMER.INFO.{journal.stream}.{durable}", {})
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
        body = {"stream_name": journal.stream, "config": config, "action": ""}
        found = await api(journal.requests, f"CONSUMER.CREATE.{journal.stream}.{durable}", body)
    if "error" in found:
        raise Unknown(f"consumer {durable}: {found['error'].get('description')}")
    return found.get("num_ack_pending", 0)


# -- events as they were before the log ---------------------------------------------------------------------------------


async def whole(journal: EventLog, recorded: Recorded) -> Event:
    """Return an event with its large values put back in.

    :raises KeyError: if a large value is not there any more
    :raises Unknown: if the log does not answer
    """
    event = recorded.event
    if not event.blobs:
        return event
    blobs = {digest: await journal.get_blob(recorded.ref, digest) for digest in event.blobs}
    return msgspec.structs.replace(event, payload=Raw(payloads.join(bytes(event.payload), blobs)))
