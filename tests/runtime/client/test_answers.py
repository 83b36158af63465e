"""The answers of models in a run, for listeners that begin in the middle of one."""

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


async def begun(connection: Connection) -> tuple[RunRef, int]:
    """Start a run; return it with the number of the call whose answer has begun, and goes on for an hour."""
    client = connection.client
    ref = client.ref(RUN)
    with pytest.raises(UnknownRun):
        await partial_answer(client.log, ref, 1)
    await client.start(START)
    calls: list[int] = []

    async def is_said() -> bool:
        calls[:] = [event.n for event in await client.events(RUN) if event.type == ModelCall.type]
        found = await partial_answer(client.log, ref, calls[0]) if calls else None
        return found is not None and found.text == "To be, "

    await until(is_said)
    return ref, calls[0]


async def test_an_answer_in_progress_is_heard_from_its_beginning(connection: Connection) -> None:
    client = connection.client
    ref, n = await begun(connection)
    heard: list[Piece] = []
    arrived = anyio.Event()

    def hear(piece: Piece) -> None:
        heard.append(piece)
        if piece.text == "end":
            arrived.set()

    subject = client.log.subjects.live(ref, "w", "model.delta")
    with anyio.fail_after(PATIENCE_S):
        async with (
            hear_answers(client, ref, hear) as answers,
            client.follow(RUN) as feed,
            anyio.create_task_group() as tg,
        ):

            async def read() -> None:
                async for _ in answers.through(feed):
                    pass

            tg.start_soon(read)
            await until(lambda: len(heard) == 1)
            # What the text so far contains is not heard again; a piece behind a gap is, as its worker has no more.
            for k, text in [(0, "To be, "), (1, "or"), (3, "gap"), (2, "late"), (4, "end")]:
                piece = {"n": n, "epoch": 1, "k": k, "path": "1", "text": text}
                await client.log.nc.publish(subject, json.dumps(piece).encode())
            await client.log.nc.publish(subject, b"not a piece")
            await arrived.wait()
            tg.cancel_scope.cancel()
    assert (heard[0].n, heard[0].k, heard[0].text, heard[0].following) == (n, 0, "To be, ", 1)
    assert [(piece.k, piece.text) for piece in heard[1:]] == [(1, "or"), (3, "gap"), (4, "end")]


async def test_a_stream_begins_with_the_beginning_of_the_answer_in_progress(connection: Connection) -> None:
    _ref, n = await begun(connection)
    with anyio.fail_after(PATIENCE_S):
        async with stream(connection.client, RUN) as feed:
            told = await anext(feed)
    assert (told.type, told.id, told.text) == ("content", f"{n}.7", "To be, ")
