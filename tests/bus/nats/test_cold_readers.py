"""Reading of cold runs: during moves and compactions, with lagging replicas, and with few reads of segments."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.errors import LogUnreadable
from callboard.bus.nats import cold_runs as cold_runs_module
from callboard.bus.nats import cooling, jetstream, stored_messages
from callboard.bus.nats.cold_runs import (
    MANIFESTS_MAX,
    ColdReader,
    ColdRuns,
    SegmentMark,
    mark_segment,
)
from callboard.bus.nats.cooling import compact, cool_runs, warm_run
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.segments import (
    SegmentBuilder,
    SegmentFolder,
    SegmentStore,
)
from callboard.bus.nats.stored_messages import Copied
from callboard.runtime.client.client import Client
from callboard.service.operations.removal import purge_run
from tests.support.cold_runs import (
    LARGE,
    NOW,
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


@pytest.mark.parametrize("call", [1, 2])
async def test_a_run_is_moved_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """After one part of its events, and before the next."""
    monkeypatch.setattr(jetstream, "READ_BATCH", 2)
    async with open_cold_store(tmp_path, run_log("a")) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        pause_before(monkeypatch, jetstream, "direct_get", lambda: cool_runs(log, folder, [ref("a")]), call)
        found = await log.read(ref("a"))
        assert [(one.sequence, one.data) for one in found] == [one[::2][:2] for one in before]


@pytest.mark.parametrize("purged", [True, False])
async def test_a_run_is_removed_from_its_segment_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purged: bool
) -> None:
    async with open_cold_store(tmp_path, run_log("a")) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a", {"text": LARGE})) as (connection, folder):
        log = connection.log
        before = await read(log, "a")
        await cool_runs(log, folder, [ref("a")])

        pause_before(monkeypatch, cooling, "append", raise_killed, 2)
        with pytest.raises(Killed):
            await warm_run(log, ref("a"))
        assert await count_events_in_stream(log, "a") == 3
        copied = [(one.sequence, one.data) async for one in cooling.copy_events(log, ref("a"))]
        assert copied == [one[::2][:2] for one in before]
        values = [one.subject async for one in cooling.copy_values(log, ref("a"))]
        assert len(values) == len(set(values)) > 0


async def test_many_tasks_read_after_compactions(tmp_path: Path) -> None:
    """All have the marks of segments that were replaced, and none of later ones."""
    async with open_cold_store(tmp_path, *[run_log(name) for name in "abcdef"]) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a")) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a"), run_log("b"), segments=segments) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("b", {str(n): f"{n}{LARGE}" for n in range(3)}), segments=folder) as (
        stand,
        _,
    ):
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
