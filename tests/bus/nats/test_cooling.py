"""Cold storage: runs move from the stream into segments and back, and readers do not notice, whenever it is killed."""

import datetime as dt
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bus.errors import LogUnreadable
from callboard.bus.events import ForkedFrom, RunEnd
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.log.port import AppendRefused, Entry, NoAnswer, readable, whole
from callboard.bus.nats import cold_runs as cold_runs_module
from callboard.bus.nats import cooling, jetstream, purge, stored_messages
from callboard.bus.nats.cold_runs import (
    MANIFESTS_MAX,
    SPANS_MAX,
    ColdReader,
    ColdRuns,
    SegmentMark,
    decode_segment_mark,
    mark_segment,
)
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.cooling import NotCold, cold_runs, compact, cool_runs, count_cold_runs, merge, warm_run
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.segment_bucket import SegmentBucket
from callboard.bus.nats.segment_cache import SegmentCache
from callboard.bus.nats.segments import (
    ManifestEntry,
    RunLocation,
    SegmentBuilder,
    SegmentDamaged,
    SegmentFolder,
    SegmentStore,
)
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.subjects import RunRef
from callboard.projections.lists.where import Both
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.event_files import store
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.removal import purge_run
from callboard.service.operations.run_lists import Listings
from callboard.service.operations.verification import verify_store
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
    """A place for segments: each test with it is done with both."""
    if request.param == "folder":
        return SegmentFolder(tmp_path / "cold")
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    url = request.getfixturevalue("objects")
    return SegmentCache(SegmentBucket(f"s3://{BUCKET}/{tmp_path.name}", url), tmp_path / "cache")


@asynccontextmanager
async def stage(
    home: Path, *logs: Log, segments: SegmentStore | None = None
) -> AsyncGenerator[tuple[Connection, SegmentStore]]:
    """A store with runs, and a place for segments; default: a folder."""
    async with open_connection(load({"data_dir": str(home), "sync": "1s", "tenant": TENANT}, env={})) as connection:
        folder = segments or SegmentFolder(home / "cold")
        connection.log.cold = ColdRuns(connection.log, folder)
        await store(connection.log, TENANT, {log.run: log.events for log in logs})
        yield connection, folder


async def read(log: JetStreamLog, name: str) -> list[tuple[int, int, bytes, bytes]]:
    """Everything that readers see of a run: each event's sequence, number, bytes, and payload with large values."""
    found = readable(await log.read(ref(name)))
    return [(one.sequence, one.event.n, one.data, bytes((await whole(log, one)).payload)) for one in found]


async def hot(log: JetStreamLog, name: str) -> int:
    """How many events of a run the stream has."""
    return len(await log._read(ref(name), 0, None, None))  # pyright: ignore[reportPrivateUsage]


LARGE = "x" * (INLINE_BYTES_MAX + 1)


async def test_readers_see_cold_runs_like_any_other(tmp_path: Path, segments: SegmentStore) -> None:
    async with stage(tmp_path, run_log("a"), run_log("b", {"text": LARGE}), segments=segments) as (connection, folder):
        log = connection.log
        before = {name: await read(log, name) for name in "ab"}
        assert await cool_runs(log, folder, [ref("a"), ref("b"), ref("none")]) == [ref("a"), ref("b")]
        assert [await hot(log, name) for name in "ab"] == [1, 1]
        assert {name: await read(log, name) for name in "ab"} == before
        sequences = [one[0] for one in before["a"]]
        assert [one.sequence for one in await log.read(ref("a"), sequences[1])] == sequences[2:]
        assert [one.sequence for one in await log.read(ref("a"), limit=2)] == sequences[:2]
        first = await log.last_of_type(ref("a"), "run.accepted")
        assert first is not None
        assert first.sequence == sequences[0]
        for filter in (log.subjects.run(ref("a")), log.subjects.events(TENANT, "a")):
            async with log.follow(filter, sequences[0]) as feed:
                assert [(await anext(feed)).sequence for _ in sequences[1:]] == sequences[1:]
            async with log.follow(filter, 0) as feed:
                assert [(await anext(feed)).sequence for _ in sequences] == sequences
        assert (await verify_store(log, TENANT, values=True)).sound
        archived = await archive_runs(log, TENANT, ["a", "b"], tmp_path / "x", children=True, progress=lambda _n: None)
        assert [one.events for one in archived] == [len(before["a"]), len(before["b"])]
        # The id stays in use, and no run can begin with it.
        with pytest.raises(AppendRefused):
            await log.put(ref("a"), [Entry(1, 1, "run.accepted", "x", "i", b"{}")], 0)


async def test_a_moved_run_is_restored(tmp_path: Path, segments: SegmentStore) -> None:
    async with stage(tmp_path, run_log("b", {"text": LARGE}), segments=segments) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("b")])
        assert await warm_run(log, ref("b")) == len(before)
        assert await hot(log, "b") == len(before)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]
        with pytest.raises(NotCold):
            await warm_run(log, ref("b"))
        assert await compact(log, folder) == 1
        assert await cool_runs(log, folder, [ref("b")]) == [ref("b")]
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


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


async def die() -> None:
    raise Killed


@pytest.mark.parametrize("call", [1, 2, 4])
async def test_two_processes_restore_a_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    async with stage(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("b")])
        pause_before(monkeypatch, JetStreamLog, "last_stored", lambda: warm_run(log, ref("b")), call)
        assert await warm_run(log, ref("b")) == len(before)
        assert await hot(log, "b") == len(before)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


@pytest.mark.parametrize(("name", "call"), [("last_message", 2), *(("erase_all", call) for call in range(1, 6))])
async def test_a_run_is_restored_while_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    """Its segment is marked, and the process that moves it is about to remove it from the stream."""
    async with stage(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        owner = JetStreamLog if name == "last_message" else cooling
        pause_before(monkeypatch, owner, name, lambda: warm_run(log, ref("b")), call)
        await cool_runs(log, folder, [ref("b")])
        monkeypatch.undo()
        assert await hot(log, "b") == len(before)
        await compact(log, folder)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


async def test_a_run_is_restored_after_its_move_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is marked, and the stream has all events."""
    async with stage(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        pause_before(monkeypatch, cooling, "_remove", die)
        with pytest.raises(Killed):
            await cool_runs(log, folder, [ref("b")])
        assert await warm_run(log, ref("b")) == len(before)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


async def test_a_restoring_process_is_killed_after_a_purge_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has stored some events after the mark of the purge."""
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    async with stage(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        await cool_runs(log, folder, [ref("b")])
        pause_before(monkeypatch, cooling, "append", die, 2)

        async def restore() -> None:
            with pytest.raises(Killed):
                await warm_run(log, ref("b"))

        pause_before(monkeypatch, purge, "erase_all", restore)
        await purge_run(Client(log, TENANT), "b", PurgeMark())
        assert await log.read(ref("b")) == []
        assert await log.next_message(log.subjects.blob(ref("b"), "*") + ".*", 1) is None


@pytest.mark.parametrize(("name", "call"), [("publish", 1), ("append", 1), ("append", 2), ("erase_all", 1)])
async def test_a_run_is_purged_while_it_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    async with stage(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        await cool_runs(log, folder, [ref("b")])
        owner = JetStreamLog if name == "publish" else cooling
        pause_before(monkeypatch, owner, name, lambda: purge_run(Client(log, TENANT), "b", PurgeMark()), call)
        with pytest.raises(NotCold):
            await warm_run(log, ref("b"))
        assert await log.read(ref("b")) == []
        assert await log.next_message(log.subjects.blob(ref("b"), "*") + ".*", 1) is None


async def test_a_fork_of_a_cold_run_and_a_cold_fork_are_read(tmp_path: Path, segments: SegmentStore) -> None:
    fork = Log("fork")
    async with stage(tmp_path, run_log("a"), segments=segments) as (connection, folder):
        log = connection.log
        fork.accepted(forked_from=ForkedFrom(run="a", n=2))
        await cool_runs(log, folder, [ref("a")])
        await store(log, TENANT, {"fork": fork.events})
        assert [one.event.n for one in await log.read(ref("fork"))] == [1, 2]


async def test_open_runs_are_not_moved(tmp_path: Path, segments: SegmentStore) -> None:
    log = Log("open")
    log.started()
    async with stage(tmp_path, log, segments=segments) as (connection, folder):
        assert await cool_runs(connection.log, folder, [ref("open")]) == []
        assert await folder.names() == []


async def test_purged_runs_vanish_and_are_removed_from_segments(tmp_path: Path, segments: SegmentStore) -> None:
    async with stage(tmp_path, run_log("a"), run_log("b"), segments=segments) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("a"), ref("b")])
        await purge_run(Client(log, TENANT), "a", PurgeMark())
        assert await log.read(ref("a")) == []
        assert await log.cold.run_messages(ref("a")) is None
        [old] = await folder.names()
        assert await compact(log, folder) == 1
        [new] = await folder.names()
        assert new != old
        assert await read(log, "b") == before
        await purge_run(Client(log, TENANT), "b", PurgeMark())
        assert await compact(log, folder) == 1
        assert await folder.names() == []


async def test_the_partial_segment_of_a_killed_process_is_removed_later(tmp_path: Path) -> None:
    folder = SegmentFolder(tmp_path)
    old, young = (tmp_path / TENANT / f"{name}.segment.12ab.part" for name in ("old", "young"))
    old.parent.mkdir()
    for file in (old, young):
        file.touch()
    os.utime(old, (0, 0))
    assert await folder.names() == []
    assert [file.exists() for file in (old, young)] == [False, True]


async def test_two_streams_share_a_place_for_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: SegmentStore
) -> None:
    """By mistake. No process removes the segments of another stream as segments that no mark names."""
    monkeypatch.setattr(cooling, "ORPHAN_AGE_S", -1.0)
    async with (
        stage(tmp_path / "1", run_log("a"), segments=segments) as (one, _),
        stage(tmp_path / "2", run_log("a"), segments=segments) as (other, _),
    ):
        before = await read(one.log, "a")
        assert await cool_runs(one.log, segments, [ref("a")]) == [ref("a")]
        assert await compact(other.log, segments) == 0
        assert await read(one.log, "a") == before


async def test_a_rebuilt_index_has_cold_runs(tmp_path: Path) -> None:
    logs = [run_log(name) for name in "abc"]
    async with stage(tmp_path, *logs) as (connection, folder):
        await cool_runs(connection.log, folder, [ref("a"), ref("b")])
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                lists = Listings(connection.log, tasks, tmp_path / "index")
                assert {row.run: row.status for row in await lists.rows(TENANT)} == dict.fromkeys("abc", "completed")
                assert len((await lists.page(TENANT, Both(()), 10)).runs) == 3
                tasks.cancel_scope.cancel()


async def test_an_index_that_could_not_read_cold_runs_reads_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object store cannot be reached for a moment."""
    async with stage(tmp_path, run_log("a"), run_log("b")) as (connection, folder):
        await cool_runs(connection.log, folder, [ref("a")])

        async def fail() -> None:
            raise OSError("it cannot be reached")

        pause_before(monkeypatch, SegmentFolder, "read", fail)
        async with anyio.create_task_group() as tasks:
            lists = Listings(connection.log, tasks, tmp_path / "index")
            with pytest.raises(NoAnswer):
                await lists.rows(TENANT)
            assert {row.run: row.status for row in await lists.rows(TENANT)} == dict.fromkeys("ab", "completed")
            tasks.cancel_scope.cancel()


async def test_an_index_that_is_built_during_a_compaction_has_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, *[run_log(name) for name in "abc"]) as (connection, folder):
        log = connection.log
        await cool_runs(log, folder, [ref("a"), ref("b")])
        await purge_run(Client(log, TENANT), "a", PurgeMark())
        reader = log.cold

        async def replace() -> None:
            log.cold = ColdRuns(log, folder)
            assert await compact(log, folder) == 1
            log.cold = reader

        await log.cold_events(ref("c"), (await log.read(ref("c")))[-1].sequence)  # It reads the marks.
        await replace()
        async with anyio.create_task_group() as tasks:
            lists = Listings(log, tasks, tmp_path / "index")
            assert {row.run: row.status for row in await lists.rows(TENANT)} == dict.fromkeys("bc", "completed")
            tasks.cancel_scope.cancel()


async def test_a_missing_segment_does_not_hide_the_other_runs(tmp_path: Path) -> None:
    async with stage(tmp_path, run_log("a"), run_log("b")) as (connection, folder):
        for name in "ab":
            await cool_runs(connection.log, folder, [ref(name)])
        first, _second = await folder.names()
        await folder.delete(first)
        async with anyio.create_task_group() as tasks:
            lists = Listings(connection.log, tasks, tmp_path / "index")
            assert {row.run: row.status for row in await lists.rows(TENANT)} == {"a": "quarantined", "b": "completed"}
            tasks.cancel_scope.cancel()


async def test_a_process_without_the_setting_fails_with_the_remedy(tmp_path: Path) -> None:
    async with stage(tmp_path, run_log("a")) as (connection, folder):
        await cool_runs(connection.log, folder, [ref("a")])
        connection.log.cold = ColdRuns(connection.log, None)
        with pytest.raises(Exception, match="no setting `cold`"):
            await connection.log.read(ref("a"))


async def test_a_changed_segment_is_noticed(tmp_path: Path) -> None:
    async with stage(tmp_path, run_log("a")) as (connection, folder):
        await cool_runs(connection.log, folder, [ref("a")])
        [name] = await folder.names()
        file = tmp_path / "cold" / name
        data = bytearray(await anyio.Path(file).read_bytes())
        data[20] ^= 1
        await anyio.Path(file).write_bytes(data)
        with pytest.raises(Exception, match="cold storage"):
            await connection.log.read(ref("a"))
        damaged = (await verify_store(connection.log, TENANT, values=False)).damaged
        assert [one.run for one in damaged] == ["a"]


async def test_a_segment_that_is_changed_or_cut_off_anywhere_is_noticed(tmp_path: Path) -> None:
    messages = [Copied(7, "cb.run.acme.a.d.run.end", NOW, {}, b"{}")]
    builder = SegmentBuilder(TENANT, "stream")
    builder.add(ref("a"), 7, messages)
    data, _listed = builder.finish()
    file = tmp_path / builder.name
    file.parent.mkdir()
    # The trailer as a whole, and samples of the rest.
    places = [*range(0, len(data) - 48, 5), *range(len(data) - 48, len(data))]
    changed = [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in places]
    for one in [data, *changed, *[data[:at] for at in places[::3]], data[1:]]:
        await anyio.Path(file).write_bytes(one)
        reader = ColdReader(SegmentFolder(tmp_path))
        reader.learn(TENANT, 0, {8: SegmentMark(builder.name, [(7, 7)], 1, 0)})
        try:
            place = await reader.find(ref("a"), 7)
            assert place is not None
            assert await reader.messages(ref("a"), place) == messages
        except LogUnreadable:
            assert one != data


async def test_a_damaged_segment_does_not_keep_others_from_being_compacted(tmp_path: Path) -> None:
    async with stage(tmp_path, *[run_log(name) for name in "abcd"]) as (connection, folder):
        log = connection.log
        for names in ("ab", "cd"):
            await cool_runs(log, folder, [ref(name) for name in names])
        for name in "ac":
            await purge_run(Client(log, TENANT), name, PurgeMark())
        first, _second = await folder.names()
        await folder.put(first, b"damaged")
        with pytest.raises(SegmentDamaged):
            await compact(log, folder)
        assert [one async for one, _end in cold_runs(log, TENANT)] == [ref("d")]


async def test_a_segment_that_is_lost_does_not_keep_other_runs_from_being_moved(tmp_path: Path) -> None:
    """Runs whose last events are among those of the segment."""
    async with stage(tmp_path, *[run_log(name) for name in "abc"]) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("a"), ref("c")])
        [name] = await folder.names()
        await folder.delete(name)
        assert await cool_runs(log, folder, [ref("b")]) == [ref("b")]
        assert await read(log, "b") == before


async def test_a_compaction_that_reads_a_server_that_lags_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, run_log("a"), run_log("b")) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("a"), ref("b")])
        last = (await log.read(ref("a")))[-1].sequence
        copy = JetStreamLog.copy_messages

        async def copy_some(log: JetStreamLog, filter: str, *more: Any, **named: Any) -> AsyncGenerator[Copied]:
            async for one in copy(log, filter, *more, **named):
                if one.sequence <= last or ".cold." in one.subject:
                    yield one

        monkeypatch.setattr(JetStreamLog, "copy_messages", copy_some)
        assert await compact(log, folder) == 0
        assert await read(log, "b") == before


@pytest.mark.parametrize("lost", [True, False])
async def test_runs_in_the_stream_do_not_depend_on_segments_of_others(tmp_path: Path, lost: bool) -> None:
    """Their ends are between those of a segment that is lost, or that a process without the setting cannot read."""
    async with stage(tmp_path, run_log("a"), run_log("b", {"text": LARGE}), run_log("c")) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("a"), ref("c")])
        [name] = await folder.names()
        await folder.delete(name)
        log.cold = ColdRuns(log, folder if lost else None)
        sequences = [one[0] for one in before]
        for after in sequences:
            assert [one.sequence for one in await log.read(ref("b"), after)] == [
                one for one in sequences if one > after
            ]
        async with log.follow(log.subjects.run(ref("b")), sequences[-2]) as feed:
            assert (await anext(feed)).sequence == sequences[-1]
        with pytest.raises(KeyError):
            await log.get_blob(ref("b"), "f" * 64)
        assert await archive_runs(log, TENANT, ["b"], tmp_path / "x", children=True, progress=lambda _n: None)
        assert [one.run for one in (await verify_store(log, TENANT, values=True)).damaged] == ["a", "c"]


@pytest.mark.parametrize("call", [1, 2])
async def test_a_run_is_moved_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """After one part of its events, and before the next."""
    monkeypatch.setattr(jetstream, "READ_BATCH", 2)
    async with stage(tmp_path, run_log("a")) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        pause_before(monkeypatch, jetstream, "direct_get", lambda: cool_runs(log, folder, [ref("a")]), call)
        found = await log.read(ref("a"))
        assert [(one.sequence, one.data) for one in found] == [one[::2][:2] for one in before]


@pytest.mark.parametrize("purged", [True, False])
async def test_a_run_is_removed_from_its_segment_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purged: bool
) -> None:
    async with stage(tmp_path, run_log("a")) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        await cool_runs(log, folder, [ref("a")])

        async def remove() -> None:
            await (purge_run(Client(log, TENANT), "a", PurgeMark()) if purged else warm_run(log, ref("a")))
            assert await compact(log, folder) == 1
            log.cold = ColdRuns(log, folder)

        pause_before(monkeypatch, JetStreamLog, "cold_events", remove)
        assert [one.data for one in await log.read(ref("a"))] == ([] if purged else [one[2] for one in before])


async def test_an_archive_of_a_run_that_is_partly_restored_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    async with stage(tmp_path, run_log("a", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        await cool_runs(log, folder, [ref("a")])

        pause_before(monkeypatch, cooling, "append", die, 2)
        with pytest.raises(Killed):
            await warm_run(log, ref("a"))
        assert await hot(log, "a") == 3
        copied = [(one.sequence, one.data) async for one in cooling.copy_events(log, ref("a"))]
        assert copied == [one[::2][:2] for one in before]
        values = [one.subject async for one in cooling.copy_values(log, ref("a"))]
        assert len(values) == len(set(values)) > 0


async def test_many_tasks_read_after_compactions(tmp_path: Path) -> None:
    """All have the marks of segments that were replaced, and none of later ones."""
    async with stage(tmp_path, *[run_log(name) for name in "abcdef"]) as (connection, folder):
        log = connection.log
        before = {name: await read(log, name) for name in "bdf"}
        for names in ("ab", "cd"):
            await cool_runs(log, folder, [ref(name) for name in names])
        await read(log, "b")
        reader, log.cold = log.cold, ColdRuns(log, folder)
        for name in "ac":
            await purge_run(Client(log, TENANT), name, PurgeMark())
        await cool_runs(log, folder, [ref(name) for name in "ef"])
        assert await compact(log, folder) == 2
        log.cold = reader
        found: list[tuple[str, Any]] = []

        async def look(name: str) -> None:
            found.append((name, await read(log, name)))

        async with anyio.create_task_group() as tasks:
            for name in "bdf" * 3:
                tasks.start_soon(look, name)
        assert len(found) == 9
        assert dict(found) == before


def test_a_mark_is_not_forgotten_when_others_are_read_again() -> None:
    def mark(name: str) -> SegmentMark:
        return SegmentMark(name, [(1, 9)], 1, 0)

    reader = ColdReader(None)
    reader.learn(TENANT, 0, {1: mark("a"), 2: mark("b")})
    # A task has read the marks before the last of them was stored; another one reads those after it.
    reader.learn_all(TENANT, {1: mark("a")})
    reader.learn(TENANT, 2, {3: mark("c")})
    assert reader.read_to(TENANT) == 1
    reader.learn(TENANT, 1, {2: mark("b"), 3: mark("c")})
    assert reader.read_to(TENANT) == 3


async def test_a_reader_waits_for_a_replica_that_lacks_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_runs_module, "MARK_RETRY_S", 0.0)
    async with stage(tmp_path, run_log("a")) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        await cool_runs(log, folder, [ref("a")])
        log.cold = ColdRuns(log, folder)
        direct_get, calls = stored_messages.direct_get, 0

        async def lag(nc: Any, stream: str, request: Any) -> Any:
            nonlocal calls
            calls += ".cold." in request["next_by_subj"]
            return (
                ([], 0) if ".cold." in request["next_by_subj"] and calls == 1 else await direct_get(nc, stream, request)
            )

        monkeypatch.setattr(stored_messages, "direct_get", lag)
        assert await read(log, "a") == before


async def test_a_reader_finds_the_segment_that_replaced_one(tmp_path: Path, segments: SegmentStore) -> None:
    """A process that has read the marks before a compaction."""
    async with stage(tmp_path, run_log("a"), run_log("b"), segments=segments) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("a"), ref("b")])
        assert await read(log, "b") == before
        reader, log.cold = log.cold, ColdRuns(log, folder)
        await purge_run(Client(log, TENANT), "a", PurgeMark())
        assert await compact(log, folder) == 1
        log.cold = reader
        assert await read(log, "b") == before
        # None replaces a segment that is lost, until it is restored from a backup.
        [name] = await folder.names()
        data = await folder.read(name, 0, 1 << 20)
        await folder.delete(name)
        log.cold = ColdRuns(log, folder)
        with pytest.raises(LogUnreadable, match="missing"):
            await log.cold_events(ref("b"))
        await folder.put(name, data)
        assert await read(log, "b") == before


async def test_a_segment_that_is_not_marked_in_time_is_removed_and_never_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is stopped after it has stored a segment, and continues after that was removed."""
    async with stage(tmp_path, run_log("a")) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        publish = JetStreamLog.publish

        async def publish_late(self: JetStreamLog, message: OutgoingMessage, **more: Any) -> int:
            if b"spans" in message.data:
                monkeypatch.setattr(JetStreamLog, "publish", publish)
                assert await compact(log, folder) == 0
                monkeypatch.setattr(cooling, "ORPHAN_AGE_S", -1.0)
                assert await compact(log, folder) == 1
                assert await folder.names() == []
            return await publish(self, message, **more)

        monkeypatch.setattr(JetStreamLog, "publish", publish_late)
        assert await cool_runs(log, folder, [ref("a")]) == []
        assert await hot(log, "a") == len(before)
        assert await read(log, "a") == before
        assert await cool_runs(log, folder, [ref("a")]) == [ref("a")]
        assert await read(log, "a") == before


async def test_small_segments_are_merged_with_those_of_their_magnitude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooling, "MERGED_TOGETHER", 3)
    names = [f"r{number}" for number in range(7)]
    async with stage(tmp_path, *map(run_log, names)) as (connection, folder):
        log = connection.log
        before = {name: await read(log, name) for name in names}
        for name in names:
            await cool_runs(log, folder, [ref(name)])
        assert {name: await read(log, name) for name in names} == before
        # A damaged segment stays as it is, and does not keep the others from being merged.
        [*_, damaged] = (await folder.names())[:3]
        data = await folder.read(damaged, 0, 1 << 20)
        await folder.put(damaged, data[:10] + b"x" + data[11:])
        log.cold = ColdRuns(log, folder)
        assert await merge(log, folder) == 5
        assert len(await folder.names()) == 4
        await folder.put(damaged, data)
        assert {name: await read(log, name) for name in names} == before
        log.cold = ColdRuns(log, folder)
        assert {name: await read(log, name) for name in names} == before
        assert await merge(log, folder) == 3
        assert await merge(log, folder) == 0
        assert {name: await read(log, name) for name in names} == before
        assert await count_cold_runs(log, TENANT) == len(names)
        await purge_run(Client(log, TENANT), "r3", PurgeMark())
        assert await compact(log, folder) == 1
        assert await read(log, "r4") == before["r4"]


def test_a_mark_names_the_parts_of_the_stream_that_have_the_ends() -> None:
    def mark_of(ends: Sequence[int]) -> SegmentMark:
        place = RunLocation("s", 0, 1, 0, 1, "")
        return mark_segment("s", [ManifestEntry(TENANT, str(end), end, place) for end in ends])

    assert mark_of([7]).spans == [(7, 7)]
    assert mark_of([12, 7, 8]).spans == [(7, 8), (12, 12)]
    ends = [*range(0, 28_000, 14), 90_000, 1_000_000]
    spans = mark_of(ends).spans
    assert len(spans) <= SPANS_MAX
    assert spans[-2:] == [(90_000, 90_000), (1_000_000, 1_000_000)]


@given(st.sets(st.integers(1, 10_000), min_size=1, max_size=60))
def test_every_run_of_a_segment_is_found_by_its_mark(ends: set[int]) -> None:
    mark = mark_segment("s", [ManifestEntry(TENANT, str(end), end, RunLocation("s", 0, 1, 0, 1, "")) for end in ends])
    assert all(mark.may_have(end) for end in ends)
    assert len(mark.spans) <= SPANS_MAX
    assert decode_segment_mark(msgspec.json.encode(mark)) == mark


class CountedFolder(SegmentFolder):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads: list[str] = []

    async def read(self, name: str, offset: int, length: int) -> bytes:
        self.reads.append(name)
        return await super().read(name, offset, length)


async def test_the_values_of_a_large_run_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its block is larger than all blocks that stay in memory."""
    monkeypatch.setattr(cold_runs_module, "BLOCKS_BYTES_MAX", 0)
    monkeypatch.setattr(cold_runs_module, "LARGE_BYTES", 0)
    folder = CountedFolder(tmp_path / "cold")
    async with stage(tmp_path, run_log("b", {str(n): f"{n}{LARGE}" for n in range(3)}), segments=folder) as (stand, _):
        log = stand.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("b")])
        assert await read(log, "b") == before
        assert len(folder.reads) == len(["trailer", "manifest", "block"])


async def test_manifests_of_segments_that_overlap_are_not_read_for_each_run(tmp_path: Path) -> None:
    """Of more segments than there are manifests in memory, each with runs that ended at the same time as all others."""
    count = MANIFESTS_MAX + 4
    marks: dict[int, SegmentMark | None] = {}
    folder = CountedFolder(tmp_path)
    for at in range(count):
        builder = SegmentBuilder(TENANT, "stream")
        for end in range(1 + at, 1 + 20 * count, count):
            builder.add(ref(str(end)), end, [Copied(end, "cb.run.acme.x.d.run.end", NOW, {}, b"{}")])
        data, listed = builder.finish()
        await folder.put(builder.name, data)
        marks[at + 1] = mark_segment(builder.name, listed)
    reader = ColdReader(folder)
    reader.learn(TENANT, 0, marks)
    assert await reader.find(ref("none"), count) is None
    for end in range(1, 1 + 2 * count):
        folder.reads.clear()
        place = await reader.find(ref(str(end)), end)
        assert place is not None
        assert place.segment == reader.known_segment(TENANT, end)
        assert set(folder.reads) <= {place.segment}


async def check(log: JetStreamLog, folder: SegmentStore, before: dict[str, Any]) -> None:
    """Read runs in a new process, so to say, and compare them with what they were."""
    log.cold = ColdRuns(log, folder)
    # No worker takes a run for one that has not ended, and no command reaches it.
    for run in before:
        last = await log.last(ref(run))
        assert last is not None
        assert last.event.type == RunEnd.type
    assert {run: [one[1:] for one in await read(log, run)] for run in before} == before


# -- killed at every step ----------------------------------------------------------------------------------------------


class Steps:
    """Counts what a move does to the outside, and kills it before or after one of these steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: JetStreamLog, store: SegmentStore) -> None:
        self.count, self.kill_at = 0, -1
        self._log = log
        for owner, name in (
            (JetStreamLog, "publish"),
            (type(store), "put"),
            (type(store), "delete"),
            (cooling, "erase_start"),
            (cooling, "erase_all"),
            (cooling, "append"),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Any) -> Any:
        async def counted(*args: Any, **more: Any) -> Any:
            self._step()
            found = await call(*args, **more)
            self._step()
            return found

        return counted

    def _step(self) -> None:
        self.count += 1
        if self.count == self.kill_at:
            raise Killed


@pytest.mark.parametrize(
    ("segments", "way"),
    [*(("folder", way) for way in ("cool", "warm", "compact", "merge")), ("objects", "compact")],
    indirect=["segments"],
)
async def test_a_move_may_be_killed_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: SegmentStore, way: str
) -> None:
    """No run is lost, doubled, or unreadable in between; the next attempt completes the move."""
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    monkeypatch.setattr(cooling, "MERGED_TOGETHER", 2)
    async with stage(tmp_path, segments=segments) as (connection, folder):
        log = connection.log
        steps = Steps(monkeypatch, log, folder)

        async def move(runs: list[str]) -> None:
            match way:
                case "cool":
                    await cool_runs(log, folder, [ref(run) for run in runs])
                case "warm":
                    for run in runs:
                        try:
                            await warm_run(log, ref(run))
                        except NotCold:
                            continue
                case "merge":
                    await merge(log, folder)
                case _:
                    await compact(log, folder)

        kill_at, done = 0, False
        while not done:
            kill_at += 1
            steps.kill_at = -1
            runs = [f"{one}-{kill_at}" for one in ("az" if way in ("compact", "merge") else "a")]
            await store(log, TENANT, {run: run_log(run, {"text": LARGE + run}).events for run in runs})
            before = {run: [one[1:] for one in await read(log, run)] for run in runs[: 1 if way == "compact" else 2]}
            if way == "merge":
                for run in runs:
                    await cool_runs(log, folder, [ref(run)])
            elif way != "cool":
                await cool_runs(log, folder, [ref(run) for run in runs])
            if way == "compact":
                await purge_run(Client(log, TENANT), runs[1], PurgeMark())

            steps.count, steps.kill_at = 0, kill_at
            try:
                await move(runs)
                done = True
            except Killed:
                pass
            steps.kill_at = -1
            await check(log, folder, before)
            await move(runs)
            await check(log, folder, before)
            if way in ("compact", "merge"):
                there = [one.run async for one, _end in cold_runs(log, TENANT)]
                assert [there.count(run) for run in before] == [1] * len(before)
            left = [len(one) if way == "warm" else 1 for one in before.values()]
            assert [await hot(log, run) for run in before] == left
        assert kill_at > 6
