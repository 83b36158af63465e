"""The files of indexes: one process keeps the file of a tenant up to date, and others read it. It stays for later."""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from callboard.bus.subjects import token

log = structlog.get_logger(__name__)

FOLDER = "index"
"""The folder of the files in the data directory."""

SLOTS_MAX = 8
"""The maximum number of files for one tenant at a time. Processes of another version or with other prices need files of
their own. If there are too many, a process has its index in memory."""


class Slot(NamedTuple):
    """The file of an index; None: it is in memory. Only the process that ``keeps`` it may index events."""

    path: Path | None
    keeps: bool


@contextmanager
def slot(folder: Path | None, tenant: str, is_readable: Callable[[Path], bool]) -> Generator[Slot]:
    """Provide a file that this process keeps during the block, or else one that another process keeps.

    ``is_readable`` tells whether this process can read the index that another one keeps.
    """
    found, descriptor = _find(folder, tenant, is_readable) if folder is not None else (None, None)
    if found is None:
        yield Slot(None, keeps=True)
        return
    try:
        yield Slot(found, keeps=descriptor is not None)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def file_of(folder: Path, tenant: str, number: int = 0) -> Path:
    """Return the path of a file of a tenant's index."""
    return folder / f"{token(tenant)}.{number}.sqlite"


def is_kept(path: Path) -> bool:
    """Return whether a process keeps a file."""
    descriptor = _lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def inode_of(path: Path) -> int | None:
    """Return the number of a file, which a file that replaces it does not have while the first one is open."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _find(folder: Path, tenant: str, is_readable: Callable[[Path], bool]) -> tuple[Path | None, int | None]:
    try:
        # Only the owner may read the files, because they contain inputs and outputs of runs.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(SLOTS_MAX):
            path = file_of(folder, tenant, number)
            if (descriptor := _lock(path)) is not None:
                return path, descriptor
            if is_readable(path):
                return path, None
    except OSError as error:
        # An index in memory is as good, but the next process cannot reuse it.
        log.warning("the index is kept in memory", folder=str(folder), error=str(error))
    return None, None


def _lock(path: Path) -> int | None:
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
