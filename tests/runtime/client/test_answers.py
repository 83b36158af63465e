"""Answers of models for listeners that subscribe while an answer is in progress."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.events import ModelCall
from callboard.bus.subjects import RunRef
from callboard.projections.trace.live_stream import Piece
from callboard.runtime.client.answers import hear_answers, partial_answer
from callboard.runtime.client.client import UnknownRun
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.client.run_stream import stream
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.patience import PATIENCE_S, until
from tests.support.playbook_cases import doc, steps

RUN = "half-said"
SCRIPT = {"turns": {"1": [{"text": "x", "progress": ["To be, ", "or not"], "delay_ms": 3_600_000}]}}
START: dict[str, Any] = {
    "definition": {"source": doc(steps("a"))},
    "run_id": RUN,
    "model": "scripted",
    "script": SCRIPT,
}


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path)
    async with open_connection(config) as connection, open_worker(connection, env={}):
        yield connection


async def start_slow_answer(connection: Connection) -> tuple[RunRef, int]:
    """Start a run whose model answers for an hour; return the run and the number of its model call."""
    client = connection.client
    ref = client.ref(RUN)
    with pytest.raises(UnknownRun):
        await partial_answer(client.log, ref, 1)
    await client.start(START)
    calls: list[int] = []

    async def has_begun() -> bool:
        calls[:] = [event.n for event in await client.events(RUN) if event.type == ModelCall.type]
        found = await partial_answer(client.log, ref, calls[0]) if calls else None
        return found is not None and found.text == "To be, "

    await until(has_begun)
    return ref, calls[0]


async def test_a_late_listener_gets_the_text_so_far_and_each_later_piece_once(connection: Connection) -> None:
    client = connection.client
    ref, n = await start_slow_answer(connection)
    received: list[Piece] = []
    arrived = anyio.Event()

    def receive(piece: Piece) -> None:
        received.append(piece)
        if piece.text == "end":
            arrived.set()

    subject = client.log.subjects.live(ref, "w", "model.delta")
    with anyio.fail_after(PATIENCE_S):
        async with (
            hear_answers(client, ref, receive) as answers,
            client.follow(RUN) as feed,
            anyio.create_task_group() as tg,
        ):

            async def read() -> None:
                async for _ in answers.through(feed):
                    pass

            tg.start_soon(read)
            await until(lambda: len(received) == 1)
            # Pieces of the text so far are dropped. A piece after a gap is kept.
            for k, text in [(0, "To be, "), (1, "or"), (3, "gap"), (2, "late"), (4, "end")]:
                piece = {"n": n, "epoch": 1, "k": k, "path": "1", "text": text}
                await client.log.nc.publish(subject, json.dumps(piece).encode())
            await client.log.nc.publish(subject, b"not a piece")
            await arrived.wait()
            tg.cancel_scope.cancel()
    assert (received[0].n, received[0].k, received[0].text, received[0].following) == (n, 0, "To be, ", 1)
    assert [(piece.k, piece.text) for piece in received[1:]] == [(1, "or"), (3, "gap"), (4, "end")]


async def test_a_stream_begins_with_the_text_so_far_of_an_answer_in_progress(connection: Connection) -> None:
    _ref, n = await start_slow_answer(connection)
    with anyio.fail_after(PATIENCE_S):
        async with stream(connection.client, RUN) as feed:
            message = await anext(feed)
    assert (message.type, message.id, message.text) == ("content", f"{n}.7", "To be, ")
