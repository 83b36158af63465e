"""Staging in memory: where the server of a data directory puts an atomic batch together before it stores it.

A stream of one replica stages every batch in files of its own (with an fsync for each), which costs three times what
storing it does. What is staged need not survive anything: only a batch that is whole is stored, and that is synced as
every message is. So the folder it is staged in is a link into memory, laid when the stream is there. The server's next
start removes the link; it is laid again then. Where there is no such memory, batches are staged in files.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

MEMORY = Path("/dev/shm")
"""A file system in memory, as Linux has it."""

ACCOUNT = "$G"
"""The account of a server that has no others."""

_PREFIX = "callboard-batches-"


class MemoryStaging:
    """The staging folder of one stream of the server over ``home``."""

    def __init__(self, home: Path, memory: Path = MEMORY) -> None:
        self._streams = home / "jetstream" / ACCOUNT / "streams"
        self._memory = memory
        self._stream: str | None = None
        self._folder: Path | None = None

    def stage(self, stream: str) -> bool:
        """Have the batches of a stream staged in memory from now on; say whether they are."""
        self._stream = stream
        return self.lay()

    def lay(self) -> bool:
        """Lay the link if it is not there; say whether it is. Harmless at any time: staged batches are left alone."""
        if self._stream is None:
            return False
        link = self._streams / self._stream / "batches"
        if link.is_symlink():
            return True
        try:
            folder = self._in_memory()
            if folder is None or not link.parent.is_dir():
                return False
            # A folder with a batch in it stays; there will be another occasion.
            with contextlib.suppress(FileNotFoundError):
                link.rmdir()
            link.symlink_to(folder, target_is_directory=True)
        except OSError as error:
            log.info("batches are staged in files", why=str(error))
            return False
        return True

    def _in_memory(self) -> Path | None:
        """Return a folder of our own in memory, None if there is none to be had."""
        if self._folder is None and self._memory.is_dir() and os.access(self._memory, os.W_OK):
            self._remove_left()
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=self._memory))
        return self._folder

    def _remove_left(self) -> None:
        """Remove the folders of those who died without doing so."""
        for left in self._memory.glob(f"{_PREFIX}*"):
            pid = left.name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdigit() and left.stat().st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True)

    def remove(self) -> None:
        """Give the memory back; the server has ended."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
