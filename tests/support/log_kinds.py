"""Every implementation of the log for the conformance tests: in memory, and JetStream with and without group commit."""

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import msgspec
import pytest
from msgspec import Raw

from callboard.bus.events import Event, encode_event
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import Entry, EventLog
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats import requests as requests_module
from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.subjects import RunRef, Subjects

RUN = RunRef("acme", "r1")
OTHER = RunRef("acme", "r2")
T0 = dt.datetime(2026, 11, 20, 11, 0, 0, tzinfo=dt.UTC)
TYPES = ("node.enter", "node.exit", "model.call", "run.claimed")
WRITERS = len(TYPES)
PATIENCE_S = 60.0


PAYLOAD = {
    "node": "a",
    "awaits": [],
    "worker": "w",
    "epoch": 1,
    "outcome": "ok",
    "purpose": "turn",
    "model": "m",
    "digest": "",
    "definition": {"language": "x", "hash": "0", "source": ""},
    "start": {},
    "error": {"code": "x", "message": "x"},
    "status": "completed",
}
"""The members that the event types of these tests need."""


def entry(n: int, writer: str = "w", *, type: str = "node.progress", definition: str = "d") -> Entry:
    """An event of a writer; its message and id name the writer."""
    payload = Raw(msgspec.json.encode({**PAYLOAD, "message": writer}))
    time = T0 + dt.timedelta(microseconds=n)
    event = Event(type=type, run="r", n=n, epoch=1, v=1, time=time, path="", definition=definition, payload=payload)
    return Entry(n, 1, type, definition, f"{writer}.1.{n}", encode_event(event))


# -- the implementations ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def jetstream(
    url: str, *, group_commit: bool, batches: bool = False, writers: int = 1
) -> AsyncGenerator[list[JetStreamLog]]:
    """Open logs on one stream, each with a separate connection."""
    async with AsyncExitStack() as stack:
        logs: list[JetStreamLog] = []
        for i in range(writers):
            nc = await stack.enter_async_context(open_nats_connection(url, name=f"writer-{i}"))
            logs.append(await open_log(nc, Subjects(), partitions=4, group_commit=group_commit))
            if batches:
                await logs[-1].choose_commit(group_commit=group_commit, batches=True)
        yield logs


@asynccontextmanager
async def implementation(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch, writers: int = 1
) -> AsyncGenerator[Sequence[EventLog]]:
    """Open one log for several writers.

    Puts wait long for their answer, because a put without an answer may be stored or not.
    """
    monkeypatch.setattr(requests_module, "REQUEST_TIMEOUT_S", PATIENCE_S)
    if kind == "memory":
        yield [MemoryLog()] * writers
    else:
        grouped, batches = kind.startswith("group"), kind.endswith("batches")
        async with jetstream(url, group_commit=grouped, batches=batches, writers=writers) as logs:
            yield logs


READING = ("memory", "jetstream")
COMMITTING = (*READING, "group-commit", "batches", "group-batches")


@pytest.fixture(params=READING)
async def log(
    request: pytest.FixtureRequest, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventLog]:
    """For tests in which it does not matter how events are committed."""
    async with implementation(request.param, nats_url, monkeypatch) as (log,):
        yield log


@pytest.fixture(params=COMMITTING)
async def committing(
    request: pytest.FixtureRequest, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventLog]:
    async with implementation(request.param, nats_url, monkeypatch) as (log,):
        yield log


@pytest.fixture(params=COMMITTING)
async def writers(
    request: pytest.FixtureRequest, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Sequence[EventLog]]:
    async with implementation(request.param, nats_url, monkeypatch, WRITERS) as logs:
        yield logs


async def take(feed: AsyncIterator[Recorded], count: int) -> list[Recorded]:
    found: list[Recorded] = []
    with anyio.fail_after(PATIENCE_S):
        while len(found) < count:
            found.append(await anext(feed))
    return found
