"""Segments: immutable files of many runs in cold storage, and the places where they are kept.

A segment has compressed blocks, each with the messages of some runs as archives have them, and then its manifest: the
runs and where each is. A reader needs the manifest, which it keeps in memory for a while, and one block.
"""

import os
import secrets
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec
from anyio import to_thread
from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.nats.archive import frame, unframe
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.subjects import RunRef, token

MAGIC = b"CBSEG001"
SUFFIX = ".segment"
PART = ".part"
"""The end of the name of a file that is being written."""

PART_AGE_S = 3600.0
"""The age from which on such a file is removed: its process was killed."""

BLOCK_BYTES = 256 * 1024
"""The uncompressed size of a block. Similar runs compress better together; a reader expands a whole block."""

MANIFEST_BYTES_MAX = 64 * 1024 * 1024
"""The maximum length of a compressed manifest. A run takes some 60 bytes."""

LEVEL = 6


class SegmentDamaged(CallboardError):
    """A segment is missing, cut off or was changed after it was written."""

    def __init__(self, segment: str, message: str) -> None:
        remedy = "Restore the file from a backup of the folder, or the bucket, of `cold`."
        super().__init__("cold.segment", f"segment {segment}: {message}", "", remedy)


class RunLocation(Struct, frozen=True):
    """Where a run is: a block of a segment, and a part of the block. The digest is that of the part."""

    segment: str
    offset: int
    length: int
    at: int
    size: int
    sha256: str


class ManifestEntry(Struct, frozen=True):
    """The manifest's entry for a run. ``end`` is the sequence of its last event, which the stream keeps."""

    tenant: str
    run: str
    end: int
    place: RunLocation

    @property
    def ref(self) -> RunRef:
        return RunRef(self.tenant, self.run)


class SegmentStore(Protocol):
    """A place for segments. Names are relative paths with slashes.

    Calls raise OSError if the place cannot be used.
    """

    async def put(self, name: str, data: bytes) -> None:
        """Store a segment. When this returns, it survives a loss of power."""
        ...

    async def read(self, name: str, offset: int, length: int) -> bytes:
        """Return a part of a segment; a negative offset counts from its end.

        :raises FileNotFoundError: if no segment has this name
        """
        ...

    async def names(self) -> list[str]:
        """Return the names of all segments, oldest first."""
        ...

    async def age_s(self, name: str) -> float:
        """Return how long ago a segment was stored, in seconds.

        :raises FileNotFoundError: if no segment has this name
        """
        ...

    async def delete(self, name: str) -> None:
        """Remove a segment, if it exists."""
        ...


class SegmentFolder:
    """Segments as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, name: str, data: bytes) -> None:
        await to_thread.run_sync(self._put, self._folder / name, data)

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")
        try:
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        for folder in (path.parent, self._folder):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    async def read(self, name: str, offset: int, length: int) -> bytes:
        return await to_thread.run_sync(self._read, self._folder / name, offset, length)

    def _read(self, path: Path, offset: int, length: int) -> bytes:
        with path.open("rb") as file:
            # As in object stores, a part that would begin before the segment begins with it.
            file.seek(max(0, file.seek(0, os.SEEK_END) + offset) if offset < 0 else offset)
            return file.read(length)

    async def names(self) -> list[str]:
        return await to_thread.run_sync(self._names)

    def _names(self) -> list[str]:
        self._remove_parts()
        return sorted(str(path.relative_to(self._folder)) for path in self._folder.glob(f"*/*{SUFFIX}"))

    def _remove_parts(self) -> None:
        """Remove the parts of segments that processes have left that were killed while they wrote them."""
        for path in self._folder.glob(f"*/*{PART}"):
            with suppress(FileNotFoundError):  # Another process may remove it.
                if time.time() - path.stat().st_mtime > PART_AGE_S:
                    path.unlink()

    async def age_s(self, name: str) -> float:
        return await to_thread.run_sync(lambda: time.time() - (self._folder / name).stat().st_mtime)

    async def delete(self, name: str) -> None:
        await to_thread.run_sync(lambda: (self._folder / name).unlink(missing_ok=True))


class SegmentBuilder:
    """A segment that is being made, of runs of one tenant. ``stream`` identifies the stream of the runs (`store_of`).

    The name has it, because several streams may have their segments in one place by mistake.
    """

    def __init__(self, tenant: str, stream: str) -> None:
        self.name = f"{token(tenant)}/{time.time_ns():020}-{stream}-{secrets.token_hex(4)}{SUFFIX}"
        self._parts: list[tuple[RunRef, int, bytes]] = []
        self.size = 0

    def add(self, ref: RunRef, end: int, messages: Sequence[Copied]) -> None:
        """Add the messages of a run, whose last event has the sequence ``end``."""
        data = b"".join(frame(one) for one in messages)
        self._parts.append((ref, end, data))
        self.size += len(data)

    def finish(self) -> tuple[bytes, list[ManifestEntry]]:
        """Return the bytes of the segment, and its runs."""
        blocks, listed, offset = list[bytes](), list[ManifestEntry](), 0
        for parts in self._group_parts():
            block = zlib.compress(b"".join(data for _ref, _end, data in parts), LEVEL)
            at = 0
            for ref, end, data in parts:
                place = RunLocation(self.name, offset, len(block), at, len(data), sha256(data).hexdigest())
                listed.append(ManifestEntry(ref.tenant, ref.run, end, place))
                at += len(data)
            blocks.append(block)
            offset += len(block)
        manifest = zlib.compress(msgspec.json.encode(listed), LEVEL)
        trailer = len(manifest).to_bytes(8, "big") + sha256(manifest).digest() + MAGIC
        return b"".join((*blocks, manifest, trailer)), listed

    def _group_parts(self) -> list[list[tuple[RunRef, int, bytes]]]:
        found, size = list[list[tuple[RunRef, int, bytes]]](), BLOCK_BYTES
        for part in self._parts:
            if size >= BLOCK_BYTES:
                found.append([])
                size = 0
            found[-1].append(part)
            size += len(part[2])
        return found


def is_of_stream(name: str, stream: str) -> bool:
    """Return whether a segment has runs of this stream, by its name."""
    return name.removesuffix(SUFFIX).split("-")[1:-1] == [stream]


_TRAILER = 8 + 32 + len(MAGIC)


async def read_manifest(store: SegmentStore, name: str) -> list[ManifestEntry]:
    """Return the runs of a segment.

    :raises FileNotFoundError: if no segment has this name
    :raises SegmentDamaged: if it is damaged
    """
    trailer = await store.read(name, -_TRAILER, _TRAILER)
    if len(trailer) != _TRAILER or not trailer.endswith(MAGIC):
        raise SegmentDamaged(name, "it is cut off, or not a segment")
    size = int.from_bytes(trailer[:8], "big")
    if size > MANIFEST_BYTES_MAX:
        raise SegmentDamaged(name, "the length of its manifest is damaged")
    manifest = await store.read(name, -_TRAILER - size, size)
    if sha256(manifest).digest() != trailer[8:40]:
        raise SegmentDamaged(name, "the digest of its manifest differs")
    return msgspec.json.decode(zlib.decompress(manifest), type=list[ManifestEntry])


def expand(block: bytes, place: RunLocation) -> bytes:
    """Return an expanded block.

    :raises SegmentDamaged: if the block is damaged
    """
    try:
        return zlib.decompress(block)
    except zlib.error as error:
        raise SegmentDamaged(place.segment, f"the block at {place.offset} is damaged: {error}") from error


def messages_at(place: RunLocation, expanded: bytes) -> list[Copied]:
    """Return the messages of a run from the expanded block that contains it.

    :raises SegmentDamaged: if the run is damaged
    """
    data = expanded[place.at : place.at + place.size]
    if sha256(data).hexdigest() != place.sha256:
        raise SegmentDamaged(place.segment, f"the digest of the run at {place.offset}+{place.at} differs")
    return unframe(data)
