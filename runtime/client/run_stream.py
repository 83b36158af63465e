"""The stream of a run in the format of its language, merged from the log and from the text that models are producing.

A slow reader does not delay the run. Pieces of text that do not fit into the queue are dropped; the result of the turn
contains their text.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, RunAccepted, RunEnd, payload_of
from callboard.bus.log.port import whole
from callboard.bus.subjects import RunRef
from callboard.projections.results import view_of
from callboard.projections.trace.live_stream import Piece, RunStream, StreamEvent, StreamFilter
from callboard.runtime.client.answers import Answers, hear_answers
from callboard.runtime.client.bounded_queue import BoundedQueue
from callboard.runtime.client.client import Client, unknown_run

PIECES_MAX = 1_000
BYTES_MAX = 1024 * 1024
"""Bounds of the queue: pieces and events that wait for the reader, and their bytes. One event may exceed the bytes."""

Item = Piece | Event


@asynccontextmanager
async def stream(
    client: Client, run: str, after: str | None = None, *, pieces_max: int = PIECES_MAX
) -> AsyncGenerator[AsyncIterator[StreamEvent]]:
    """Stream a run to its end, from its beginning or after the id ``after`` of an event.

    :raises UnknownRun: if the run does not exist
    :raises CallboardError: ``stream.none`` if its language has no stream
    :raises ValueError: if ``after`` is not a valid id
    """
    onward = StreamFilter() if after is None else StreamFilter.behind(after)
    ref = client.ref(run)
    merged = await _stream_of(client, ref)
    waiting = BoundedQueue[Item](pieces_max, BYTES_MAX, _size_of)

    def hear(piece: Piece) -> None:
        # Ids count the characters of a text, so a text without its beginning is of no use.
        if not piece.omitted:
            waiting.put_nowait(piece)  # If the queue is full the piece is dropped: the turn's result contains its text.

    async with hear_answers(client, ref, hear) as answers, anyio.create_task_group() as tasks:
        tasks.start_soon(_events, client, run, answers, waiting)
        yield _merge(waiting, merged, onward)
        tasks.cancel_scope.cancel()


async def _events(client: Client, run: str, answers: Answers, waiting: BoundedQueue[Item]) -> None:
    try:
        async with client.follow(run) as feed:
            async for recorded in answers.through(feed):
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
        message = f"runs of the language {payload.definition.language} have no stream"
        raise CallboardError("stream.none", message, ref.run, "Follow its events with `callboard watch RUN`.")
    return view.stream()


async def _merge(waiting: BoundedQueue[Item], merged: RunStream, onward: StreamFilter) -> AsyncIterator[StreamEvent]:
    async for item in waiting:
        for told in merged.piece(item) if isinstance(item, Piece) else merged.event(item):
            if (new := onward.new(told)) is not None:
                yield new
