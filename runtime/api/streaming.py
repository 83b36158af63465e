"""Streaming: a run as its language streams it, merged from the log and from what models are saying at the moment.

Whoever reads may be as slow as they like: pieces of text that find no room are dropped, and the results of their turns
make up for them. No run waits for that.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from nats.aio.msg import Msg

from callboard.bus.events import Event, RunEnd
from callboard.bus.log import whole
from callboard.projections.playbook_stream import Onward, Piece, PlaybookStream, Told
from callboard.runtime.api.client import Client, UnknownRun

PIECES_MAX = 1_000
"""Pieces and events that wait for the reader."""

Item = Piece | Event


@asynccontextmanager
async def stream(
    client: Client, run: str, behind: str | None = None, *, pieces_max: int = PIECES_MAX
) -> AsyncGenerator[AsyncIterator[Told]]:
    """Stream a run of a playbook from its beginning, or ``behind`` an id, to its end.

    :raises UnknownRun: if there is no such run
    :raises ValueError: if ``behind`` is no id
    """
    onward = Onward() if behind is None else Onward.behind(behind)
    ref = client.ref(run)
    if await client.log.last(ref) is None:
        raise UnknownRun(ref)
    send, receive = anyio.create_memory_object_stream[Item](pieces_max)

    async def take(message: Msg) -> None:
        try:
            send.send_nowait(msgspec.json.decode(message.data, type=Piece))
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the turn's result has the text

    subject = client.log.subjects.live(ref, None, "model.delta")
    subscription = await client.nc.subscribe(subject, cb=take)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_events, client, run, send)
            with receive:
                yield _told(receive, onward)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await subscription.unsubscribe()


async def _events(client: Client, run: str, send: MemoryObjectSendStream[Item]) -> None:
    async with send, client.follow(run) as feed:
        async for recorded in feed:
            event = await whole(client.log, recorded)
            await send.send(event)
            if event.type == RunEnd.type:
                return


async def _told(receive: MemoryObjectReceiveStream[Item], onward: Onward) -> AsyncIterator[Told]:
    merged = PlaybookStream()
    async for item in receive:
        for told in merged.piece(item) if isinstance(item, Piece) else merged.event(item):
            if (new := onward.new(told)) is not None:
                yield new
