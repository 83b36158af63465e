"""Streaming: a run as its language streams it, merged from the log and from what models are saying at the moment.

Whoever reads may be as slow as they like: pieces of text that find no room are dropped, and the results of their turns
make up for them. No run waits for that.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from nats.aio.msg import Msg

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, RunAccepted, RunEnd, payload_of
from callboard.bus.log.port import whole
from callboard.bus.subjects import RunRef
from callboard.lib.json_errors import JSON_ERRORS
from callboard.projections.results import view_of
from callboard.projections.trace.live_stream import Onward, Piece, RunStream, Told
from callboard.service.api.ahead import Ahead
from callboard.service.api.client import Client, unknown_run

PIECES_MAX = 1_000
BYTES_MAX = 1024 * 1024
"""Pieces and events that wait for the reader, and their bytes; of an event with large values there is one at most."""

Item = Piece | Event


@asynccontextmanager
async def stream(
    client: Client, run: str, behind: str | None = None, *, pieces_max: int = PIECES_MAX
) -> AsyncGenerator[AsyncIterator[Told]]:
    """Stream a run from its beginning, or ``behind`` an id, to its end.

    :raises UnknownRun: if there is no such run
    :raises CallboardError: ``stream.none`` if its language has no stream
    :raises ValueError: if ``behind`` is no id
    """
    onward = Onward() if behind is None else Onward.behind(behind)
    ref = client.ref(run)
    merged = await _stream_of(client, ref)
    waiting = Ahead[Item](pieces_max, BYTES_MAX, _size_of)

    async def take(message: Msg) -> None:
        try:
            piece = msgspec.json.decode(message.data, type=Piece)
        except JSON_ERRORS:
            return  # a stranger's
        waiting.put_nowait(piece)  # if there is no room, the turn's result has the text

    subject = client.log.subjects.live(ref, None, "model.delta")
    subscription = await client.log.nc.subscribe(subject, cb=take)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_events, client, run, waiting)
            yield _told(waiting, merged, onward)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await subscription.unsubscribe()


async def _events(client: Client, run: str, waiting: Ahead[Item]) -> None:
    try:
        async with client.follow(run) as feed:
            async for recorded in feed:
                event = await whole(client.log, recorded)
                await waiting.put(event)
                if event.type == RunEnd.type:
                    return
    finally:
        waiting.end()


def _size_of(item: Item) -> int:
    return len(item.text) if isinstance(item, Piece) else len(item.payload)


async def _stream_of(client: Client, ref: RunRef) -> RunStream:
    accepted = await client.log.last_of_type(ref, RunAccepted.type)
    if accepted is None:
        raise await unknown_run(client.log, ref)
    payload = payload_of(await whole(client.log, accepted))
    assert isinstance(payload, RunAccepted)
    view = view_of(payload.definition.language)
    if view is None or view.stream is None:
        message = f"a {payload.definition.language} has no stream"
        raise CallboardError("stream.none", message, ref.run, "Its events are `callboard watch RUN`.")
    return view.stream()


async def _told(waiting: Ahead[Item], merged: RunStream, onward: Onward) -> AsyncIterator[Told]:
    async for item in waiting:
        for told in merged.piece(item) if isinstance(item, Piece) else merged.event(item):
            if (new := onward.new(told)) is not None:
                yield new
