"""Cold storage with changed, damaged or lost segments: they are noticed, and other runs stay readable."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.errors import LogUnreadable
from callboard.bus.nats.cold_runs import (
    ColdReader,
    ColdRuns,
    SegmentMark,
)
from callboard.bus.nats.cooling import cold_runs, compact, cool_runs
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.nats.segments import (
    SegmentBuilder,
    SegmentDamaged,
    SegmentFolder,
)
from callboard.bus.nats.stored_messages import Copied
from callboard.runtime.client.client import Client
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.removal import purge_run
from callboard.service.operations.run_lists import Listings
from callboard.service.operations.verification import verify_store
from tests.support.cold_runs import LARGE, NOW, TENANT, open_cold_store, read, ref, run_log


async def test_a_missing_segment_does_not_hide_the_other_runs(tmp_path: Path) -> None:
    async with open_cold_store(tmp_path, run_log("a"), run_log("b")) as (connection, folder):
        for name in "ab":
            await cool_runs(connection.log, folder, [ref(name)])
        first, _second = await folder.names()
        await folder.delete(first)
        async with anyio.create_task_group() as tasks:
            lists = Listings(connection.log, tasks, tmp_path / "index")
            assert {row.run: row.status for row in await lists.rows(TENANT)} == {"a": "quarantined", "b": "completed"}
            tasks.cancel_scope.cancel()


async def test_a_process_without_the_setting_fails_with_the_remedy(tmp_path: Path) -> None:
    async with open_cold_store(tmp_path, run_log("a")) as (connection, folder):
        await cool_runs(connection.log, folder, [ref("a")])
        connection.log.cold = ColdRuns(connection.log, None)
        with pytest.raises(Exception, match="no setting `cold`"):
            await connection.log.read(ref("a"))


async def test_a_changed_segment_is_noticed(tmp_path: Path) -> None:
    async with open_cold_store(tmp_path, run_log("a")) as (connection, folder):
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
    async with open_cold_store(tmp_path, *[run_log(name) for name in "abcd"]) as (connection, folder):
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
    async with open_cold_store(tmp_path, *[run_log(name) for name in "abc"]) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a"), run_log("b")) as (connection, folder):
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
    async with open_cold_store(tmp_path, run_log("a"), run_log("b", {"text": LARGE}), run_log("c")) as (
        connection,
        folder,
    ):
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
