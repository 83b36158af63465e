"""Atomic batches are staged in memory where there is some, over crashes of the server too, and else in files."""

from pathlib import Path

import anyio
import pytest

from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.jetstream import open_log
from callboard.bus.nats.server.embedded import EmbeddedServer, Restarted
from callboard.bus.nats.server.memory_staging import MEMORY, MemoryStaging
from callboard.bus.nats.staging_probe import batches_are_cheap, is_cheap
from callboard.bus.subjects import Subjects

needs_memory = pytest.mark.skipif(not MEMORY.is_dir(), reason=f"no {MEMORY} here")


def folder_of(home: Path, stream: str) -> Path:
    return home / "nats" / "jetstream" / "$G" / "streams" / stream / "batches"


@needs_memory
async def test_the_link_to_memory_is_restored_when_the_server_restarts(tmp_path: Path) -> None:
    back = anyio.Event()

    def restarted(_restarted: Restarted) -> None:
        back.set()

    async with EmbeddedServer(tmp_path, sync="100ms", on_restart=restarted) as server:
        async with open_nats_connection(server.url, name="test") as nc:
            log = await open_log(nc, Subjects(), partitions=4)
            link = folder_of(tmp_path, log.stream)
            assert server.stage_in_memory(log.stream)
            staged = link.readlink()
            assert staged.is_relative_to(MEMORY)
            # A refused batch leaves nothing in the stream and in memory.
            await batches_are_cheap(log.requests, log.subjects)
            assert await log.next_sequence(">", 1) is None
            assert list(staged.iterdir()) == []
        server.kill()
        with anyio.fail_after(30):
            await back.wait()
        assert link.readlink() == staged
    assert not staged.exists(), "the memory is given back"


async def test_without_memory_batches_are_staged_in_files(tmp_path: Path) -> None:
    streams = tmp_path / "jetstream" / "$G" / "streams"
    staging = MemoryStaging(tmp_path, tmp_path / "none")
    assert not staging.lay()
    (streams / "S").mkdir(parents=True)
    assert not staging.stage("S")
    assert not (streams / "S" / "batches").exists()
    staging.remove()


def test_a_batch_in_progress_is_not_removed(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    folder = tmp_path / "jetstream" / "$G" / "streams" / "S" / "batches"
    (folder / "one").mkdir(parents=True)
    staging = MemoryStaging(tmp_path, memory)
    assert not staging.stage("S")
    assert (folder / "one").is_dir()
    (folder / "one").rmdir()
    assert staging.lay()
    assert folder.is_symlink()
    staging.remove()
    assert list(memory.iterdir()) == []


def test_the_error_of_a_refused_batch_names_its_staging_folder() -> None:
    assert is_cheap(single_s=0.000_2, batch_s=0.000_7)
    assert not is_cheap(single_s=0.000_2, batch_s=0.006_5)
