"""Cold storage: runs move from the stream into segments and back, and readers do not notice, whenever it is killed."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bus.events import ForkedFrom
from callboard.bus.log.port import AppendRefused, Entry, NoAnswer
from callboard.bus.nats import cooling, purge
from callboard.bus.nats.cold_runs import (
    SPANS_MAX,
    ColdRuns,
    SegmentMark,
    decode_segment_mark,
    mark_segment,
)
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.cooling import NotCold, compact, cool_runs, count_cold_runs, merge, warm_run
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.segments import (
    ManifestEntry,
    RunLocation,
    SegmentFolder,
    SegmentStore,
)
from callboard.projections.lists.where import Both
from callboard.runtime.client.client import Client
from callboard.service.files.event_files import store
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.removal import purge_run
from callboard.service.operations.run_lists import Listings
from callboard.service.operations.verification import verify_store
from tests.support.cold_runs import (
    LARGE,
    TENANT,
    Killed,
    count_events_in_stream,
    open_cold_store,
    pause_before,
    raise_killed,
    read,
    ref,
    run_log,
)
from tests.support.cold_runs import objects as objects  # fixtures
from tests.support.cold_runs import segments as segments
from tests.support.event_logs import Log


async def test_readers_see_cold_runs_like_any_other(tmp_path: Path, segments: SegmentStore) -> None:
    async with open_cold_store(tmp_path, run_log("a"), run_log("b", {"text": LARGE}), segments=segments) as (
        connection,
        folder,
    ):
        log = connection.log
        before = {name: await read(log, name) for name in "ab"}
        assert await cool_runs(log, folder, [ref("a"), ref("b"), ref("none")]) == [ref("a"), ref("b")]
        assert [await count_events_in_stream(log, name) for name in "ab"] == [1, 1]
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
    async with open_cold_store(tmp_path, run_log("b", {"text": LARGE}), segments=segments) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("b")])
        assert await warm_run(log, ref("b")) == len(before)
        assert await count_events_in_stream(log, "b") == len(before)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]
        with pytest.raises(NotCold):
            await warm_run(log, ref("b"))
        assert await compact(log, folder) == 1
        assert await cool_runs(log, folder, [ref("b")]) == [ref("b")]
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


@pytest.mark.parametrize("call", [1, 2, 4])
async def test_two_processes_restore_a_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    async with open_cold_store(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        await cool_runs(log, folder, [ref("b")])
        pause_before(monkeypatch, JetStreamLog, "last_stored", lambda: warm_run(log, ref("b")), call)
        assert await warm_run(log, ref("b")) == len(before)
        assert await count_events_in_stream(log, "b") == len(before)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


@pytest.mark.parametrize(("name", "call"), [("last_message", 2), *(("erase_all", call) for call in range(1, 6))])
async def test_a_run_is_restored_while_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    """Its segment is marked, and the process that moves it is about to remove it from the stream."""
    async with open_cold_store(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        owner = JetStreamLog if name == "last_message" else cooling
        pause_before(monkeypatch, owner, name, lambda: warm_run(log, ref("b")), call)
        await cool_runs(log, folder, [ref("b")])
        monkeypatch.undo()
        assert await count_events_in_stream(log, "b") == len(before)
        await compact(log, folder)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


async def test_a_run_is_restored_after_its_move_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is marked, and the stream has all events."""
    async with open_cold_store(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "b")
        pause_before(monkeypatch, cooling, "_remove", raise_killed)
        with pytest.raises(Killed):
            await cool_runs(log, folder, [ref("b")])
        assert await warm_run(log, ref("b")) == len(before)
        assert [one[1:] for one in await read(log, "b")] == [one[1:] for one in before]


async def test_a_restoring_process_is_killed_after_a_purge_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has stored some events after the mark of the purge."""
    monkeypatch.setattr(cooling, "RESTORED_AT_ONCE", 2)
    async with open_cold_store(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
        log = connection.log
        await cool_runs(log, folder, [ref("b")])
        pause_before(monkeypatch, cooling, "append", raise_killed, 2)

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
    async with open_cold_store(tmp_path, run_log("b", {"text": LARGE})) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a"), segments=segments) as (connection, folder):
        log = connection.log
        fork.accepted(forked_from=ForkedFrom(run="a", n=2))
        await cool_runs(log, folder, [ref("a")])
        await store(log, TENANT, {"fork": fork.events})
        assert [one.event.n for one in await log.read(ref("fork"))] == [1, 2]


async def test_open_runs_are_not_moved(tmp_path: Path, segments: SegmentStore) -> None:
    log = Log("open")
    log.started()
    async with open_cold_store(tmp_path, log, segments=segments) as (connection, folder):
        assert await cool_runs(connection.log, folder, [ref("open")]) == []
        assert await folder.names() == []


async def test_purged_runs_vanish_and_are_removed_from_segments(tmp_path: Path, segments: SegmentStore) -> None:
    async with open_cold_store(tmp_path, run_log("a"), run_log("b"), segments=segments) as (connection, folder):
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
        open_cold_store(tmp_path / "1", run_log("a"), segments=segments) as (one, _),
        open_cold_store(tmp_path / "2", run_log("a"), segments=segments) as (other, _),
    ):
        before = await read(one.log, "a")
        assert await cool_runs(one.log, segments, [ref("a")]) == [ref("a")]
        assert await compact(other.log, segments) == 0
        assert await read(one.log, "a") == before


async def test_a_rebuilt_index_has_cold_runs(tmp_path: Path) -> None:
    logs = [run_log(name) for name in "abc"]
    async with open_cold_store(tmp_path, *logs) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a"), run_log("b")) as (connection, folder):
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
    async with open_cold_store(tmp_path, *[run_log(name) for name in "abc"]) as (connection, folder):
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


async def test_a_segment_that_is_not_marked_in_time_is_removed_and_never_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is stopped after it has stored a segment, and continues after that was removed."""
    async with open_cold_store(tmp_path, run_log("a")) as (connection, folder):
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
        assert await count_events_in_stream(log, "a") == len(before)
        assert await read(log, "a") == before
        assert await cool_runs(log, folder, [ref("a")]) == [ref("a")]
        assert await read(log, "a") == before


async def test_small_segments_are_merged_with_those_of_their_magnitude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooling, "MERGED_TOGETHER", 3)
    names = [f"r{number}" for number in range(7)]
    async with open_cold_store(tmp_path, *map(run_log, names)) as (connection, folder):
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
