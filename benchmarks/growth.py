"""Growth: how memory, lists, searches, running work and restarts change with the number of finished runs in a store.

The store has copies of one run of two nodes, under other ids: their events are written directly, because performing
them would take hours. Every ninth copy has failed.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from benchmarks.footprint import children, resident_mb
from benchmarks.staffed import chain, settings, start_message
from callboard.bus.nats.cold_runs import mark_segment
from callboard.bus.nats.cooling import SEGMENT_RUNS_MAX
from callboard.bus.nats.feed import MARK
from callboard.bus.nats.jetstream import NUMBER, JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.segments import SegmentBuilder
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.subjects import RunRef
from callboard.features.index.files import FOLDER
from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import Both, where
from callboard.runtime.client.connection import Connection, open_connection
from callboard.service.operations.run_lists import listings
from callboard.service.worker.bootstrap import open_worker

CALLBOARD = str(Path(sys.executable).with_name("callboard"))
RUNS = (20_000,)
SYNC = "100ms"
TEMPLATE = "grown-00000000"
FAILED_EVERY = 9
SENT_AT_ONCE = 5_000
"""Messages that are sent to the server before waiting until it has stored them."""
LOOK_S = 0.02
STARTS = 40
TRIES = 3
PAGE = 50
HOT = 50_000
"""The number of runs in the stream, if the others are in cold storage."""
VIEWS = 20
QUERIES = ("status=failed", "definition=chain-2 and status=failed", "text~ok and status=failed", "text~nothing")


class Row(Struct, kw_only=True):
    """The figures of one size of the store."""

    runs: int
    messages: int
    store_mb: float
    index_mb: float
    busy_mb: float
    first_ms: float
    indexed_s: float
    page_ms: float
    count_ms: float
    search_ms: float
    run_ms: float
    rested_mb: float = 0.0
    back_s: float = 0.0


async def report(sizes: tuple[int, ...] = RUNS) -> None:
    print("Growth: runs of two nodes in an embedded store")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        stored = 0
        for size in (0, *sorted(sizes)):
            async with _open_with_worker(folder) as connection:
                began = time.perf_counter()
                if not stored:
                    await connection.client.start(start_message(2, TEMPLATE))
                    await _wait_for_end(connection, TEMPLATE)
                await _grow(connection.log, connection.config.tenant, stored, size)
                print(f"  wrote {size - stored:,} runs in {time.perf_counter() - began:.1f} s")
                stored = size
                rows.append(await _measure(connection, folder, size))
            rows[-1].rested_mb, rows[-1].back_s = _restart(folder)
    print(_table(rows))


@asynccontextmanager
async def _open_with_worker(folder: str) -> AsyncGenerator[Connection]:
    async with open_connection(settings(folder, SYNC)) as connection, open_worker(connection, {}):
        yield connection


async def _wait_for_end(connection: Connection, run: str) -> None:
    async with connection.client.follow(run, event_type="run.end", after=0) as ends:
        async for _end in ends:
            return


async def _grow(log: JetStreamLog, tenant: str, first: int, beyond: int) -> None:
    """Store copies of the template."""
    template = [one async for one in log.copy_messages(log.subjects.run(RunRef(tenant, TEMPLATE)))]
    sent = await _last_sequence(log)
    for number in range(first + 1, beyond + 1):
        name = f"grown-{number:08}"
        for message in template:
            subject, data = _rename_message(message, name, failed=not number % FAILED_EVERY)
            await log.nc.publish(subject, data, headers={one: message.headers[one] for one in (MARK, NUMBER)})
            sent += 1
            if not sent % SENT_AT_ONCE:
                await _until(log, sent)
    await _until(log, sent)


def _rename_message(message: Copied, name: str, *, failed: bool) -> tuple[str, bytes]:
    data = message.data.replace(TEMPLATE.encode(), name.encode())
    if failed and message.subject.endswith(".run.end"):
        data = data.replace(b'"status":"completed"', b'"status":"failed"', 1)
    return message.subject.replace(TEMPLATE, name), data


async def _last_sequence(log: JetStreamLog) -> int:
    return (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]["last_seq"]


async def _until(log: JetStreamLog, sequence: int) -> None:
    await log.nc.flush()
    while await _last_sequence(log) < sequence:  # noqa: ASYNC110 — the server does not report its progress
        await anyio.sleep(LOOK_S)


async def _measure(connection: Connection, folder: str, runs: int) -> Row:
    state = (await api(connection.log.requests, f"STREAM.INFO.{connection.log.stream}", {}))["state"]
    shutil.rmtree(Path(folder, FOLDER), ignore_errors=True)
    tenant = connection.config.tenant
    first_s = await _first_page_s(connection)
    async with listings(connection) as keeper:
        began = time.perf_counter()
        await keeper.counts(tenant)
        indexed_s = time.perf_counter() - began
        # Like a command, while `callboard up` keeps the index.
        page_s = min([await _first_page_s(connection) for _ in range(TRIES)])
        count_s = min([await _first_count_s(connection) for _ in range(TRIES)])
        trees = [where(query, STATUSES, connection.log.now()) for query in QUERIES]
        search_s = [await _best(lambda tree=tree: keeper.page(tenant, tree, PAGE)) for tree in trees]
    run_s = await _run_s(connection, f"timed-{runs}")
    server = connection.server
    assert server is not None
    return Row(
        runs=runs,
        messages=state["messages"],
        store_mb=state["bytes"] / 1e6,
        index_mb=_size_mb(Path(folder, FOLDER)),
        busy_mb=resident_mb(server.pid),
        first_ms=first_s * 1000,
        indexed_s=indexed_s,
        page_ms=page_s * 1000,
        count_ms=count_s * 1000,
        search_ms=max(search_s) * 1000,
        run_ms=run_s * 1000,
    )


def _size_mb(folder: Path) -> float:
    return sum(one.stat().st_size for one in folder.iterdir()) / 1e6


async def _first_page_s(connection: Connection) -> float:
    """Return the seconds until a process that has just connected has the first page of all runs."""
    began = time.perf_counter()
    async with listings(connection) as found:
        await found.page(connection.config.tenant, Both(()), PAGE)
        return time.perf_counter() - began


async def _first_count_s(connection: Connection) -> float:
    began = time.perf_counter()
    async with listings(connection) as found:
        await found.matching(connection.config.tenant, where("status=failed", STATUSES, connection.log.now()))
        return time.perf_counter() - began


async def _best(call: Callable[[], Awaitable[object]]) -> float:
    taken: list[float] = []
    for _ in range(TRIES):
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return min(taken)


async def _run_s(connection: Connection, tag: str) -> float:
    """Return the median seconds from a start to the end of a run of two nodes."""
    taken: list[float] = []
    async with connection.client.follow(event_type="run.end", after=None) as ends:
        for number in range(STARTS):
            began = time.perf_counter()
            await connection.client.start(start_message(2, f"{tag}-{number}"))
            async for recorded in ends:
                if recorded.ref.run == f"{tag}-{number}":
                    break
            taken.append(time.perf_counter() - began)
    return sorted(taken)[STARTS // 2]


def _restart(folder: str) -> tuple[float, float]:
    """Start everything, kill it, and start it again with a run.

    Return the server's memory after the clean start, and the seconds from the kill until the run has ended.
    """
    definition, script = Path(folder, "definition.json"), Path(folder, "script.json")
    definition.write_text(chain(2))
    script.write_text('{"default": {"text": "ok"}}')
    env = {**os.environ, "CALLBOARD_SYNC": SYNC, "CALLBOARD_DATA_DIR": folder}
    up = subprocess.Popen([CALLBOARD, "up"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert up.stdout is not None
    up.stdout.readline()
    servers = [pid for pid in children(up.pid) if "nats-server" in Path(f"/proc/{pid}/cmdline").read_text()]
    rested_mb = sum(resident_mb(pid) for pid in servers)
    began = time.perf_counter()
    for pid in (up.pid, *servers):
        os.kill(pid, signal.SIGKILL)
    up.wait()
    run = [CALLBOARD, "run", str(definition), "--script", str(script)]
    subprocess.run(run, check=True, capture_output=True, env=env)
    return rested_mb, time.perf_counter() - began


async def report_cold(runs: int, hot: int = HOT) -> None:
    """Report on a store with ``runs`` finished runs, of which ``hot`` are in the stream and the others in segments."""
    print(f"Cold storage: {runs:,} runs of two nodes, of which {hot:,} are in the stream")
    with tempfile.TemporaryDirectory() as folder:
        async with _open_with_worker(folder) as connection:
            await connection.client.start(start_message(2, TEMPLATE))
            await _wait_for_end(connection, TEMPLATE)
            began = time.perf_counter()
            before = await _stream_bytes(connection.log)
            await _grow_cold(connection, runs - hot)
            in_stream = await _stream_bytes(connection.log) - before
            in_segments = _segments_bytes(folder)
            print(f"  wrote {runs - hot:,} cold runs in {time.perf_counter() - began:.1f} s")
            each, other = in_stream / (runs - hot), in_segments / (runs - hot)
            print(
                f"  disk of a cold run               {each + other:>9,.0f} bytes, {other:,.0f} of them in the segment"
            )
            await _grow(connection.log, connection.config.tenant, runs - hot, runs)
            print(f"  first view of a cold run         {await _first_view_s(connection, runs - hot) * 1000:>9.1f} ms")
            print(f"  a run of two nodes               {await _run_s(connection, 'timed') * 1000:>9.1f} ms")
            assert connection.server is not None
            print(f"  memory of the server, in use     {resident_mb(connection.server.pid):>9.0f} MB", flush=True)
        rested_mb, back_s = _restart(folder)
        print(f"  memory of the server, started    {rested_mb:>9.0f} MB")
        print(f"  from `kill -9` to the next end   {back_s:>9.1f} s", flush=True)
        shutil.rmtree(Path(folder, FOLDER), ignore_errors=True)
        async with _open_with_worker(folder) as connection:
            began = time.perf_counter()
            async with listings(connection) as keeper:
                count = await keeper.matching(connection.config.tenant, Both(()))
            print(f"  index of {count:>9,} runs, built in {time.perf_counter() - began:>9.1f} s")
            print(f"  first page of a new process      {await _first_page_s(connection) * 1000:>9.0f} ms")
            print(f"  first count of a new process     {await _first_count_s(connection) * 1000:>9.0f} ms")
            assert connection.server is not None
            print(f"  memory of the server, in use     {resident_mb(connection.server.pid):>9.0f} MB", flush=True)


def _segments_bytes(folder: str) -> int:
    return sum(one.stat().st_size for one in Path(folder, "cold").rglob("*.segment"))


async def _stream_bytes(log: JetStreamLog) -> int:
    return (await api(log.requests, f"STREAM.INFO.{log.stream}", {}))["state"]["bytes"]


async def _grow_cold(connection: Connection, count: int) -> None:
    """Store copies of the template as a move leaves them: segments with their marks, and the last event of each."""
    log, tenant, store = connection.log, connection.config.tenant, connection.log.cold.store
    assert store is not None
    template = [one async for one in log.copy_messages(log.subjects.run(RunRef(tenant, TEMPLATE)))]
    sent = await _last_sequence(log)
    for first in range(1, count + 1, SEGMENT_RUNS_MAX):
        builder = SegmentBuilder(tenant, log.store)
        for number in range(first, min(first + SEGMENT_RUNS_MAX, count + 1)):
            name = f"grown-{number:08}"
            sent += 1
            copies: list[Copied] = []
            for behind, message in enumerate(reversed(template)):
                subject, data = _rename_message(message, name, failed=not number % FAILED_EVERY)
                copies.append(Copied(sent - behind, subject, message.time, message.headers, data))
            headers = {one: template[-1].headers[one] for one in (MARK, NUMBER)}
            await log.nc.publish(copies[0].subject, copies[0].data, headers=headers)
            builder.add(RunRef(tenant, name), sent, copies[::-1])
        data, listed = builder.finish()
        await store.put(builder.name, data)
        mark = msgspec.json.encode(mark_segment(builder.name, listed))
        await log.nc.publish(log.subjects.segment_mark(builder.name), mark)
        sent += 1
        await _until(log, sent)


async def _first_view_s(connection: Connection, count: int) -> float:
    """Return the longest time of reading one of several cold runs, each from a block that was not read before."""
    taken: list[float] = []
    for number in range(1, count, max(1, count // VIEWS)):
        began = time.perf_counter()
        assert len(await connection.client.events(f"grown-{number:08}")) > 2
        taken.append(time.perf_counter() - began)
    return max(taken)


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "runs": lambda row: f"{row.runs:,}",
    "messages": lambda row: f"{row.messages:,}",
    "store": lambda row: f"{row.store_mb:,.0f} MB",
    "index": lambda row: f"{row.index_mb:,.0f} MB",
    "server, busy": lambda row: f"{row.busy_mb:,.0f} MB",
    "started": lambda row: f"{row.rested_mb:,.0f} MB",
    "list, no index": lambda row: f"{row.first_ms:.0f} ms",
    "indexed in": lambda row: f"{row.indexed_s:.1f} s",
    "list": lambda row: f"{row.page_ms:.0f} ms",
    "count": lambda row: f"{row.count_ms:.0f} ms",
    "search": lambda row: f"{row.search_ms:.0f} ms",
    "one run": lambda row: f"{row.run_ms:.1f} ms",
    "kill to run": lambda row: f"{row.back_s:.1f} s",
}


def _table(rows: list[Row]) -> str:
    lines = [tuple(COLUMNS), *(tuple(cell(row) for cell in COLUMNS.values()) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
