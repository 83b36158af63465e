"""Live streams of events as they are recorded, as server-sent events whose ids are stream sequences.

A reader that reconnects with the ``Last-Event-ID`` of its last event gets every later event exactly once, from the log.
A reader that accepts no data for `WRITE_WAIT_S` is disconnected; until then up to `BYTES_AHEAD` bytes are queued for
it, and further events stay in the log.

Pieces of models' answers (``model.delta``) are sent between the events, without an id, since they are not in the log.
Pieces that do not fit into the queue are dropped; the result of the turn contains their text.

A reader follows topics in one stream, as filters over the log of which an event matches at most one. ``runs`` has the
start and end of all runs, ``questions`` the questions to people, ``run:ID`` all events of one run. All topics share one
stream, in the order of the log, so a single sequence is the position of the reader.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from starlette.types import Receive, Scope, Send

from callboard.bus.events import TYPES
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import Subjects
from callboard.lib.json_errors import JSON_ERRORS
from callboard.projections.trace.live_stream import Piece
from callboard.runtime.client.bounded_queue import BoundedQueue
from callboard.surfaces.http.http_server import STOPPING

TOPICS_MAX = 32
"""Maximum number of topics of one reader."""

OF_ALL = {"runs": "run.>", "questions": "human.>"}
"""Topics over all runs, with the filter of their event types."""

ONE = "run:"

FAMILIES = sorted({f"{head}.>" if dot else head for head, dot, _ in (name.partition(".") for name in TYPES)})
"""Filters that together match every type of event, each exactly once."""


def runs_of(topics: Sequence[str]) -> list[str]:
    """Return the runs of which all events are followed."""
    return list(dict.fromkeys(topic.removeprefix(ONE) for topic in topics if topic.startswith(ONE)))


_TYPE = re.compile(r"(?:(?:[a-z_]+|\*)\.)*(?:[a-z_]+|\*|>)")
TYPE_CHARS_MAX = 80


def type_filter(type: str) -> str:
    """Return a valid filter of event types: ``run.end``, ``run.>``, ``*.end``.

    :raises ValueError: if the filter is invalid
    """
    if len(type) > TYPE_CHARS_MAX or not _TYPE.fullmatch(type):
        raise ValueError(
            f"invalid type of events: {type[:TYPE_CHARS_MAX]!r}; expected a type like run.end, or a prefix like run.>"
        )
    return type


def filters_of(topics: Sequence[str], subjects: Subjects, tenant: str) -> list[str]:
    """Return the filters of topics.

    :raises ValueError: if a topic or run id is invalid, or the number of topics is
    """
    if not topics or len(topics) > TOPICS_MAX:
        raise ValueError(f"{len(topics)} topics given; expected 1 to {TOPICS_MAX}")
    if unknown := [topic for topic in topics if topic not in OF_ALL and not topic.startswith(ONE)]:
        raise ValueError(f"unknown topic: {unknown[0][:80]!r}; expected {', '.join(OF_ALL)} or {ONE}ID")
    shared = [kind for topic, kind in OF_ALL.items() if topic in topics]
    own = [family for family in FAMILIES if family not in shared] if shared else [">"]
    everywhere = [subjects.events(tenant, event_type=kind) for kind in shared]
    return everywhere + [subjects.events(tenant, run, event_type=kind) for run in runs_of(topics) for kind in own]


HEARTBEAT_S = 15.0
WRITE_WAIT_S = 20.0
END_WAIT_S = 1.0
"""How long sending the end of a stream to a reader may take."""

EVENTS_AHEAD = 16
"""Maximum number of events that are queued for one reader."""

PIECES_AHEAD = 256
"""Maximum number of events and pieces that are queued for one reader of both."""

BYTES_AHEAD = 256 * 1024
"""Maximum number of queued bytes of events and pieces; the last event may exceed it."""

MEDIA_TYPE = "text/event-stream"

HEADERS = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
"""The last header asks proxies to pass events on at once."""

LIVE_MAX = 1_024
"""Maximum number of concurrent readers."""

KNOWN_S = 5.0
"""How often a reader's authorisation is checked: its key may have been removed, or its token may have expired."""

Frames = Callable[[], AsyncGenerator[bytes]]
"""Starts the stream of frames for a reader."""


class Live:
    """An ASGI application that sends the frames of ``frames`` to one reader, for as long as ``may`` returns true.

    ``pieces`` has runs, each with the subject on which pieces of its models' answers are published. ``left`` is called
    at the end.
    """

    def __init__(
        self,
        log: JetStreamLog,
        frames: Frames,
        may: Callable[[], Awaitable[bool]],
        left: Callable[[], None],
        pieces: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        self._frames = frames
        self._may = may
        self._left = left
        self._pieces = pieces or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ahead = PIECES_AHEAD if self._pieces else EVENTS_AHEAD
        events = BoundedQueue[bytes](ahead, BYTES_AHEAD, len)
        try:
            async with self._hearing(events), anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                tasks.start_soon(_until_stopped, scope, tasks.cancel_scope)
                tasks.start_soon(self._until_unknown, tasks.cancel_scope)
                tasks.start_soon(self._follow, events)
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                await _write(send, b": live\n\n", tasks.cancel_scope)
                await _tell(events, send, tasks.cancel_scope)
                tasks.cancel_scope.cancel()
            # A reader that is still connected will reconnect, to another process, or to get the reason as an error.
            await _end(send)
        finally:
            self._left()

    @asynccontextmanager
    async def _hearing(self, events: BoundedQueue[bytes]) -> AsyncGenerator[None]:
        """Subscribe to the pieces of models' answers for the length of the block."""
        async with AsyncExitStack() as stack:
            for run, subject in self._pieces.items():
                subscription = await self._log.nc.subscribe(subject, cb=partial(_take, run, events))
                stack.push_async_callback(_leave, subscription)
            yield

    async def _follow(self, events: BoundedQueue[bytes]) -> None:
        try:
            async with aclosing(self._frames()) as told:
                async for frame in told:
                    await events.put(frame)
        except NoAnswer:
            # The reader reconnects with the id of its last event.
            return
        finally:
            events.end()

    async def _until_unknown(self, reading: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(KNOWN_S)
            if not await self._may():
                reading.cancel()
                return


async def _take(run: str, events: BoundedQueue[bytes], message: Msg) -> None:
    try:
        piece = msgspec.structs.asdict(msgspec.json.decode(message.data, type=Piece))
    except JSON_ERRORS:
        return  # from another program
    events.put_nowait(b"event: model.delta\ndata: " + msgspec.json.encode({"run": run, **piece}) + b"\n\n")


async def _leave(subscription: Subscription) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(WRITE_WAIT_S), suppress(NatsError):
        await subscription.unsubscribe()


async def _tell(ready: BoundedQueue[bytes], send: Send, scope: anyio.CancelScope) -> None:
    while True:
        frame = b": beat\n\n"
        with anyio.move_on_after(HEARTBEAT_S):
            try:
                frame = await anext(ready)
            except StopAsyncIteration:
                return
        await _write(send, frame, scope)


async def _write(send: Send, body: bytes, scope: anyio.CancelScope) -> None:
    with anyio.move_on_after(WRITE_WAIT_S) as slow:
        await send({"type": "http.response.body", "body": body, "more_body": True})
    if slow.cancelled_caught:
        scope.cancel()


async def _end(send: Send) -> None:
    with anyio.move_on_after(END_WAIT_S):
        await send({"type": "http.response.body"})


async def _until_stopped(scope: Scope, reading: anyio.CancelScope) -> None:
    if STOPPING in scope:
        await scope[STOPPING].wait()
        reading.cancel()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
