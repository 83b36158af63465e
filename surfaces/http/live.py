"""Live: events as they are recorded, as server-sent events whose ids are stream sequences.

Whoever comes back with the ``Last-Event-ID`` of what it has seen misses nothing and sees nothing twice: what it did not
take meanwhile is in the log. A reader that takes nothing for `WRITE_WAIT_S` is let go of; until then `BYTES_AHEAD` are
kept for it, and the server holds back the rest.

Pieces of models' answers as they are said (``model.delta``) stand between the events, without an id: they are not in
the log. One that finds no room is left out; the result of its turn has the text.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from starlette.types import Receive, Scope, Send

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.lib.json_errors import JSON_ERRORS
from callboard.projections.trace.live_stream import Piece
from callboard.service.api.ahead import Ahead
from callboard.surfaces.http.http_server import STOPPING

HEARTBEAT_S = 15.0
WRITE_WAIT_S = 20.0
END_WAIT_S = 1.0
"""How long a reader may take to hear that we stop."""

EVENTS_AHEAD = 16
"""Events that are ready to be written to one reader."""

PIECES_AHEAD = 256
"""Events and pieces of answers that are ready to be written to one reader who hears both."""

BYTES_AHEAD = 256 * 1024
"""Of both so many bytes, and one event at most."""

MEDIA_TYPE = "text/event-stream"

HEADERS = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
"""The last one asks proxies to hand events on at once."""

LIVE_MAX = 1_024
"""Readers at once."""

KNOWN_S = 5.0
"""How often it is looked whether a reader may still read: a key may have been removed, a token have ended."""

Frames = Callable[[], AsyncGenerator[bytes]]
"""Begins to tell what a reader follows."""


class Live:
    """An ASGI application that tells what ``frames`` yields, for as long as whoever reads ``may``.

    ``pieces`` are runs, each with the subject of what is said in it besides, and not kept. ``left`` is called at the
    end.
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
        events = Ahead[bytes](ahead, BYTES_AHEAD, len)
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
            # Whoever still reads comes back: to whoever serves next, or to be told why not.
            await _end(send)
        finally:
            self._left()

    @asynccontextmanager
    async def _hearing(self, events: Ahead[bytes]) -> AsyncGenerator[None]:
        """Hear what is said besides."""
        async with AsyncExitStack() as stack:
            for run, subject in self._pieces.items():
                subscription = await self._log.nc.subscribe(subject, cb=partial(_take, run, events))
                stack.push_async_callback(_leave, subscription)
            yield

    async def _follow(self, events: Ahead[bytes]) -> None:
        try:
            async with aclosing(self._frames()) as told:
                async for frame in told:
                    await events.put(frame)
        except NoAnswer:
            # The reader comes back by itself, with what it has seen.
            return
        finally:
            events.end()

    async def _until_unknown(self, reading: anyio.CancelScope) -> None:
        while True:
            await anyio.sleep(KNOWN_S)
            if not await self._may():
                reading.cancel()
                return


async def _take(run: str, events: Ahead[bytes], message: Msg) -> None:
    try:
        piece = msgspec.structs.asdict(msgspec.json.decode(message.data, type=Piece))
    except JSON_ERRORS:
        return  # a stranger's
    events.put_nowait(b"event: model.delta\ndata: " + msgspec.json.encode({"run": run, **piece}) + b"\n\n")


async def _leave(subscription: Subscription) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(WRITE_WAIT_S), suppress(NatsError):
        await subscription.unsubscribe()


async def _tell(ready: Ahead[bytes], send: Send, scope: anyio.CancelScope) -> None:
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
