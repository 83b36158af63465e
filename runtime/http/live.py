"""Live: events as they are recorded, as server-sent events whose ids are stream sequences.

Whoever comes back with the ``Last-Event-ID`` of what it has seen misses nothing and sees nothing twice: what it did not
take meanwhile is in the log. A reader that takes nothing for `WRITE_WAIT_S` is let go of; until then a few hundred
kilobytes are kept for it, and the server holds back the rest.
"""

from collections.abc import Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.types import Receive, Scope, Send

from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import NoAnswer, Recorded

HEARTBEAT_S = 15.0
WRITE_WAIT_S = 20.0
EVENTS_AHEAD = 16
"""Events that are ready to be written to one reader."""

MEDIA_TYPE = "text/event-stream"

HEADERS = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
"""The last one asks proxies to hand events on at once."""

LIVE_MAX = 1_024
"""Readers at once."""


class Live:
    """An ASGI application that tells the events of a filter, behind a stream sequence; None: from now on."""

    def __init__(self, log: JetStreamLog, filter: str, after: int | None, left: Callable[[], None]) -> None:
        self._log = log
        self._filter = filter
        self._after = after
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events, ready = anyio.create_memory_object_stream[Recorded](EVENTS_AHEAD)
        try:
            async with anyio.create_task_group() as tasks, events, ready:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                tasks.start_soon(self._follow, events)
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                await _write(send, b": live\n\n", tasks.cancel_scope)
                await _tell(ready, send, tasks.cancel_scope)
                tasks.cancel_scope.cancel()
        finally:
            self._left()

    async def _follow(self, events: MemoryObjectSendStream[Recorded]) -> None:
        with events:
            try:
                async with self._log.follow(self._filter, self._after) as feed:
                    async for recorded in feed:
                        await events.send(recorded)
            except NoAnswer:
                # The reader comes back by itself, with what it has seen.
                return


async def _tell(ready: MemoryObjectReceiveStream[Recorded], send: Send, scope: anyio.CancelScope) -> None:
    while True:
        recorded = None
        with anyio.move_on_after(HEARTBEAT_S):
            try:
                recorded = await ready.receive()
            except anyio.EndOfStream:
                return
        await _write(send, _frame(recorded) if recorded is not None else b": beat\n\n", scope)


async def _write(send: Send, body: bytes, scope: anyio.CancelScope) -> None:
    with anyio.move_on_after(WRITE_WAIT_S) as slow:
        await send({"type": "http.response.body", "body": body, "more_body": True})
    if slow.cancelled_caught:
        scope.cancel()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _frame(recorded: Recorded) -> bytes:
    head = f"id: {recorded.sequence}\nevent: {recorded.event.type}\ndata: "
    # An event is one line of JSON.
    return head.encode() + recorded.data.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n"
