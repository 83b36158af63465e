"""Temporary folders that do not stay: a process that is killed leaves its folder, and the next one removes it.

The owner of a folder holds a lock on it, which ends with the process, in any container that shares the folder's parent.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "callboard-temporary-"
"""How the names of the folders begin. A person does not choose such a name for a folder to keep."""

_UNLOCKED = ".callboard-temporary-"
"""How the name of a folder begins before its owner has the lock."""


class TemporaryFolder:
    """A folder below ``parent``, by default that of the system, and its lock. ``remove`` ends both."""

    def __init__(self, parent: Path | None = None) -> None:
        """Create the folder, after removing those of processes that were killed.

        :raises OSError: if it cannot be created
        """
        parent = parent or Path(tempfile.gettempdir())
        # Owners of this user's folders may have ended without removing them.
        for left in parent.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if left.lstat().st_uid == os.getuid() and left.is_dir() and not left.is_symlink():
                    _remove_unlocked(left)
        unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=parent))
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unlocked.rename(parent / (PREFIX + unlocked.name.removeprefix(_UNLOCKED)))

    def remove(self) -> None:
        """Remove the folder with everything in it. Files that this process may not remove stay."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@contextmanager
def temporary_folder() -> Generator[Path]:
    """A temporary folder that is removed when the block ends.

    :raises OSError: if it cannot be created
    """
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _remove_unlocked(left: Path) -> None:
    lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)
