"""Streams with runs for tests of cold storage, and places for their segments."""

import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from callboard.bus.events import RunEnd
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import readable
from callboard.bus.nats.cold_runs import (
    ColdRuns,
)
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.segment_bucket import SegmentBucket
from callboard.bus.nats.segment_cache import SegmentCache
from callboard.bus.nats.segments import (
    SegmentFolder,
    SegmentStore,
)
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import store
from tests.support.event_logs import Log
from tests.support.s3_server import BUCKET, ENV, s3_server

TENANT = "acme"

NOW = dt.datetime.now(dt.UTC)


class Killed(BaseException):
    """The process that moves runs is killed."""


def run_log(name: str, output: Any = "done") -> Log:
    log = Log(name)
    log.started()
    log.add(RunEnd("completed", output))
    return log


def ref(name: str) -> RunRef:
    return RunRef(TENANT, name)


@pytest.fixture(scope="module")
def objects() -> Generator[str]:
    """The address of an object store."""
    with s3_server() as url:
        yield url


Kind = Literal["folder", "objects"]


@pytest.fixture(params=get_args(Kind))
def segments(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SegmentStore:
    """A place for segments, of both kinds."""
    if request.param == "folder":
        return SegmentFolder(tmp_path / "cold")
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    url = request.getfixturevalue("objects")
    return SegmentCache(SegmentBucket(f"s3://{BUCKET}/{tmp_path.name}", url), tmp_path / "cache")


@asynccontextmanager
async def open_cold_store(
    home: Path, *logs: Log, segments: SegmentStore | None = None
) -> AsyncGenerator[tuple[Connection, SegmentStore]]:
    """Open a store with runs, and a place for segments; default: a folder."""
    async with open_connection(load({"data_dir": str(home), "sync": "1s", "tenant": TENANT}, env={})) as connection:
        folder = segments or SegmentFolder(home / "cold")
        connection.log.cold = ColdRuns(connection.log, folder)
        await store(connection.log, TENANT, {log.run: log.events for log in logs})
        yield connection, folder


async def read(log: JetStreamLog, name: str) -> list[tuple[int, int, bytes, bytes]]:
    """Read sequence, number, bytes, and payload with large values of each event of a run."""
    found = readable(await log.read(ref(name)))
    return [(one.sequence, one.event.n, one.data, bytes((await whole(log, one)).payload)) for one in found]


async def count_events_in_stream(log: JetStreamLog, name: str) -> int:
    """The number of events of a run in the stream."""
    return len(await log._read(ref(name), 0, None, None))  # pyright: ignore[reportPrivateUsage]


LARGE = "x" * (INLINE_BYTES_MAX + 1)


def pause_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[[], Awaitable[Any]], call: int = 1
) -> None:
    """Do something else before the given call of a function."""
    original, calls = getattr(owner, name), 0

    async def called(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            await action()
        return await original(*args, **more)

    monkeypatch.setattr(owner, name, called)


async def raise_killed() -> None:
    raise Killed


async def check_runs(log: JetStreamLog, folder: SegmentStore, before: dict[str, Any]) -> None:
    """Read runs like a new process, and compare them with ``before``."""
    log.cold = ColdRuns(log, folder)
    # Workers see that the run has ended.
    for run in before:
        last = await log.last(ref(run))
        assert last is not None
        assert last.event.type == RunEnd.type
    assert {run: [one[1:] for one in await read(log, run)] for run in before} == before
