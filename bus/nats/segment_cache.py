"""Blocks and manifests of segments that were read from an object store, in a local folder, so that they are read once.

Each is a file named for its offset, in a folder per segment. Segments are immutable, so a block is never outdated. But
a run may be purged, and its segment rewritten on another machine. So a block stays for at most `AGE_MAX_S`.
"""

import os
import secrets
import shutil
import time
from pathlib import Path

from anyio import to_thread

from callboard.bus.nats.segments import SegmentStore

BYTES_MAX = 512 * 1024 * 1024
"""The maximum size of all blocks. The ones that were used longest ago are removed first."""

AGE_MAX_S = 24 * 3600.0
"""The time after which a block is removed."""

LOOK_EVERY = 64
"""The number of stored blocks after which old ones are removed."""


class SegmentCache:
    """A `SegmentStore` with a folder for blocks that were read from ``store``."""

    def __init__(self, store: SegmentStore, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self.store = store
        self._folder = folder
        self._bytes_max = bytes_max
        self._stored = 0

    async def put(self, name: str, data: bytes) -> None:
        await self.store.put(name, data)

    async def read(self, name: str, offset: int, length: int) -> bytes:
        path = self._folder / name / str(offset)
        found = await to_thread.run_sync(_read, path)
        if found is None or len(found) != length:
            found = await self.store.read(name, offset, length)
            await to_thread.run_sync(self._keep, path, found)
        return found

    def _keep(self, path: Path, data: bytes) -> None:
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            aside.write_bytes(data)
            aside.replace(path)
        except OSError:
            # Without room, or a folder that another process removes now, the block is read from the store again.
            aside.unlink(missing_ok=True)
        if self._stored % LOOK_EVERY == 0:
            self.remove_old()
        self._stored += 1

    def remove_old(self) -> None:
        """Remove blocks that are too old, and those that were used longest ago, if there are too many."""
        kept, now = list[tuple[float, int, Path]](), time.time()
        for path in self._folder.glob("*/*/*"):
            try:
                stat = path.stat()
                if now - stat.st_mtime > AGE_MAX_S:
                    path.unlink()
                else:
                    kept.append((stat.st_atime, stat.st_size, path))
            except FileNotFoundError:
                continue  # Another process has removed it.
        size = sum(one[1] for one in kept)
        for _used_at, bytes_, path in sorted(kept):
            if size <= self._bytes_max:
                break
            path.unlink(missing_ok=True)
            size -= bytes_

    async def names(self) -> list[str]:
        return await self.store.names()

    async def age_s(self, name: str) -> float:
        return await self.store.age_s(name)

    async def delete(self, name: str) -> None:
        await self.store.delete(name)
        await to_thread.run_sync(lambda: shutil.rmtree(self._folder / name, ignore_errors=True))


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        os.utime(path, times=(time.time(), path.stat().st_mtime))
    except OSError:
        return None
    return data
