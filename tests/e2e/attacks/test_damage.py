"""A flipped bit in the store of an embedded server affects only its run, and every reader reports it."""

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Kill
from callboard.bus.errors import LogUnreadable
from callboard.bus.log.damage import require_first
from callboard.bus.subjects import RunRef
from callboard.projections.run.status import RunStatus
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.fork_starts import ForkRun, begin_fork
from callboard.service.operations.operation import ApiError
from callboard.service.operations.results import result_of
from callboard.service.operations.run_lists import listings
from callboard.service.operations.verification import verify_store
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.http.readings import Readings
from callboard.surfaces.http.shapes import OneMoment, OnePiece
from tests.support.workflows import document

PATIENCE_S = 30.0
SOURCE = json.dumps(document({"a": {}, "b": {}}, [("a", "b")], id="w"))
DAMAGED = {
    "open-last": "run.parked",
    "open-middle": "node.enter",
    "ended-last": "run.end",
    "ended-middle": "model.result",
    "first": "run.accepted",
}
"""Runs by name, with the type of the event whose message is damaged."""

LARGE = "large"
"""A run of which a piece of a large value is damaged."""

PIECE = b"y" * 600_000


UNREADABLE_RUNS = {
    "ended-middle": "event 7 is missing",
    "open-middle": "event 5 is missing",
    "open-last": "the message of the run's last event is damaged",
    "ended-last": "the message of the run's last event is damaged",
    LARGE: "its large value",
}
"""Runs by name, with the reported damage."""


def encode(body: Struct) -> bytes:
    return msgspec.json.encode(body)


def config_for(home: Path) -> Config:
    return load({"data_dir": home, "sync": "100ms", "tenant": "acme", "park_linger_s": 0}, env={}, cwd=home)


@asynccontextmanager
async def open_store(home: Path, *, works: bool = True) -> AsyncGenerator[Connection]:
    async with open_connection(config_for(home), "test") as connection:
        if not works:
            yield connection
            return
        async with open_worker(connection, env={}):
            yield connection


def start_message(run: str, **fields: object) -> dict[str, object]:
    script = {"default": {"text": f"said in {run}"}}
    return {"definition": {"source": SOURCE}, "model": "scripted", "script": script, "run_id": run, **fields}


async def wait_for(client: Client, run: str, *types: str) -> ev.Event:
    with anyio.fail_after(PATIENCE_S):
        async with client.follow(run) as feed:
            async for item in feed:
                if item.event.type in types:
                    return item.event
    raise AssertionError


def flip_a_bit(home: Path, run: str, event_type: str) -> None:
    """Change one bit of a stored event, as a failing disk does."""
    [block] = (home / "nats" / "jetstream").rglob("msgs/1.blk")
    data = bytearray(block.read_bytes())
    at = data.find(f".{run}.w.{event_type}".encode())
    assert at > 0
    data[data.find(b'"time"', at) + 12] ^= 1
    block.write_bytes(data)


def flip_a_bit_of_a_value(home: Path) -> None:
    """Change one bit of the second piece of each large value that holds `PIECE`."""
    [block] = (home / "nats" / "jetstream").rglob("msgs/1.blk")
    data = bytearray(block.read_bytes())
    damaged = 0
    at = data.find(b"cb.blob.")
    while at > 0:
        end = data.find(b"cb.", at + 8)
        piece = data.find(PIECE[:50_000], at, end if end > 0 else len(data))
        if b".1" in data[at : at + 120] and piece > 0:
            data[piece + 25_000] ^= 1
            damaged += 1
        at = data.find(b"cb.blob.", at + 8)
    assert damaged
    block.write_bytes(data)


async def perform(home: Path) -> None:
    """Perform each run of `DAMAGED` up to its end, or to its breakpoint, and `LARGE`."""
    async with open_store(home) as connection:
        script = {"default": {"text": PIECE.decode()}}
        assert (await connection.client.start(start_message(LARGE, script=script))).status == "accepted"
        for run in DAMAGED:
            fields = {"breakpoints": ["b"]} if run.startswith("open") else {}
            assert (await connection.client.start(start_message(run, **fields))).status == "accepted"
        for run in (*DAMAGED, LARGE):
            await wait_for(connection.client, run, ev.RunParked.type, ev.RunEnd.type)


@pytest.fixture(scope="module", autouse=True)
def shared_servers() -> None:
    """Share no server: each store has its own, because it is damaged."""


@pytest.fixture(scope="module")
def damaged_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which each run of `DAMAGED` has a damaged event, and `LARGE` a damaged value."""
    home = tmp_path_factory.mktemp("damaged")
    anyio.run(perform, home)
    for run, event_type in DAMAGED.items():
        flip_a_bit(home, run, event_type)
    flip_a_bit_of_a_value(home)
    return home


@pytest.fixture
def damaged(damaged_store: Path, tmp_path: Path) -> Path:
    """A copy of that store. The folder of staged batches is a link to memory, which the server makes again."""
    shutil.copytree(damaged_store, tmp_path / "store", ignore=shutil.ignore_patterns("batches"))
    return tmp_path / "store"


async def status_of(connection: Connection, run: str) -> RunStatus:
    return result_of(await connection.client.events(run)).status


async def test_a_damaged_store_is_verified(damaged: Path) -> None:
    async with open_store(damaged, works=False) as connection:
        report = await verify_store(connection.log, "acme", values=True)
    found = {damage.run: damage.found for damage in report.damaged}
    assert found == {
        "open-last": ["the last event is damaged"],
        "open-middle": ["event 5 is missing"],
        "ended-last": ["the last event is damaged"],
        "ended-middle": ["event 7 is missing"],
        "first": ["event 1 is missing"],
        LARGE: found[LARGE],
    }
    assert all("of event" in text and text.endswith("is missing") for text in found[LARGE])
    first = min(int(text.split()[-3]) for text in found[LARGE])
    assert first == 1, found[LARGE]


@pytest.mark.parametrize("run", ["open-last", "open-middle"])
async def test_an_open_run_is_quarantined_and_can_be_killed_or_forked(damaged: Path, run: str) -> None:
    async with open_store(damaged) as connection:
        verdict = await connection.client.tell(run, "cancel", Cancel())
        assert verdict.status == "accepted"
        await wait_for(connection.client, run, ev.RunQuarantined.type)
        assert await status_of(connection, run) == "quarantined"
        events = await connection.client.events(run)
        asked = ForkRun(run, at=4, start={"run_id": "again", "breakpoints": []})
        forked = await begin_fork(connection.client, asked, events)
        assert forked.status == "accepted", forked
        await wait_for(connection.client, "again", ev.RunEnd.type)
        assert await status_of(connection, "again") == "completed"
        await connection.client.tell(run, "kill", Kill())
        await wait_for(connection.client, run, ev.RunEnd.type)
        assert await status_of(connection, run) == "cancelled"


async def test_a_repeated_start_executes_nothing_again(damaged: Path) -> None:
    async with open_store(damaged) as connection:
        for run in DAMAGED:
            before = await connection.client.events(run)
            verdict = await connection.client.start(start_message(run))
            assert verdict.status == "rejected" if run.endswith("last") else verdict.duplicate
            turns = [event for event in await connection.client.events(run) if event.type == ev.ModelCall.type]
            assert turns == [event for event in before if event.type == ev.ModelCall.type]


async def test_readers_report_missing_events(damaged: Path, tmp_path: Path) -> None:
    async with open_store(damaged, works=False) as connection:
        for run, missing in UNREADABLE_RUNS.items():
            warnings = result_of(await connection.client.events(run)).warnings
            assert {warning.code for warning in warnings} == {LogUnreadable.CODE}
            assert missing in warnings[0].reason
            with pytest.raises(LogUnreadable):
                await archive_runs(
                    connection.log, "acme", [run], tmp_path / "x.cba", children=False, progress=lambda _: None
                )
        with pytest.raises(LogUnreadable, match="event 1 is missing"):
            require_first(RunRef("acme", "first"), await connection.client.events("first"))
        with pytest.raises(LogUnreadable, match="event 1 is missing"):
            await begin_fork(connection.client, ForkRun("first", again=True), await connection.client.events("first"))


async def test_readings_of_a_damaged_run_are_refused_with_a_code(damaged: Path) -> None:
    async with open_store(damaged, works=False) as connection:
        readings = Readings(connection)
        for run in (*DAMAGED, LARGE):
            with pytest.raises(ApiError) as refused:
                await readings.replay("acme", OneMoment(run, 0))
            assert (refused.value.status, refused.value.code) == (409, LogUnreadable.CODE), run
            index = await readings.index("acme", OnePiece(run))
            assert not index.more
            at = await readings.at("acme", OneMoment(run, 0))
            assert at.last == index.last


@pytest.mark.parametrize("run", ["open-last", "ended-last"])
async def test_a_run_is_forked_before_its_damaged_last_event(damaged: Path, run: str) -> None:
    async with open_store(damaged) as connection:
        last = (await connection.client.events(run))[-1].n
        refused = await begin_fork(connection.client, ForkRun(run, at=last), [])
        assert [(one.code, one.expected) for one in refused.problems] == [
            ("fork.no_event", f"an event from 1 to {last - 1}")
        ]
        forked = await begin_fork(connection.client, ForkRun(run, at=4, start={"run_id": "f", "breakpoints": []}), [])
        assert forked.status == "accepted", forked
        await wait_for(connection.client, "f", ev.RunEnd.type)
        assert await status_of(connection, "f") == "completed"


async def test_a_run_without_its_first_event_is_listed(damaged: Path) -> None:
    async with open_store(damaged) as connection, listings(connection) as lists:
        rows = {row.run: row for row in await lists.rows("acme")}
    assert (rows["first"].status, rows["first"].error) == ("quarantined", LogUnreadable.CODE)
    assert rows.keys() == {*DAMAGED, LARGE}


async def test_a_truncated_store_works_and_reports_its_loss(damaged: Path) -> None:
    """Without its index the server reads the file again, and drops all messages from the first damaged one on."""
    [index] = (damaged / "nats" / "jetstream").rglob("index.db")
    index.unlink()
    with capture_logs() as logs:
        async with open_store(damaged) as connection:
            report = await verify_store(connection.log, "acme", values=True)
            for run in DAMAGED:
                await connection.client.start(start_message(run))
                await wait_for(connection.client, run, ev.RunEnd.type, ev.RunParked.type)
    assert report.lost_bytes
    assert not report.sound
    assert "the store has lost messages" in [entry["event"] for entry in logs]
