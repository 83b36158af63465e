"""Staging in memory: the folder in which an embedded server assembles an atomic batch before it stores it.

A stream with one replica stages every batch in separate files, with an fsync for each. That takes three times as long
as storing the batch. Staged files need not survive a crash: the server stores only complete batches, and syncs them
like every message. So we replace the staging folder of the stream by a link to a file system in memory. The server
removes the link when it starts, and we create it again. Without such a file system, batches are staged in files.
"""

import contextlib
import os
from pathlib import Path

import structlog

from callboard.lib.temporary_folders import TemporaryFolder

log = structlog.get_logger(__name__)

MEMORY = Path("/dev/shm")
"""A file system in memory, on Linux."""

ACCOUNT = "$G"
"""The account of a server without configured accounts."""


class MemoryStaging:
    """The staging folder of one stream of the server with the store ``home``."""

    def __init__(self, home: Path, memory: Path = MEMORY) -> None:
        self._streams = home / "jetstream" / ACCOUNT / "streams"
        self._memory = memory
        self._stream: str | None = None
        self._folder: TemporaryFolder | None = None

    def stage(self, stream: str) -> bool:
        """Stage the batches of a stream in memory from now on; return whether that is possible."""
        self._stream = stream
        return self.lay()

    def lay(self) -> bool:
        """Create the link if it does not exist; return whether it exists. Staged batches are not affected."""
        if self._stream is None:
            return False
        link = self._streams / self._stream / "batches"
        if link.is_symlink():
            return True
        try:
            folder = self._in_memory()
            if folder is None or not link.parent.is_dir():
                return False
            # A folder with a batch in it cannot be removed. The next call tries again.
            with contextlib.suppress(FileNotFoundError):
                link.rmdir()
            link.symlink_to(folder, target_is_directory=True)
        except OSError as error:
            log.info("batches are staged in files", why=str(error))
            return False
        return True

    def _in_memory(self) -> Path | None:
        """Return our folder in memory, created if necessary; None if that is not possible."""
        if self._folder is None and self._memory.is_dir() and os.access(self._memory, os.W_OK):
            self._folder = TemporaryFolder(self._memory)
        return self._folder.path if self._folder is not None else None

    def remove(self) -> None:
        """Remove the folder in memory after the server has ended."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
