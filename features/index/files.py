"""The files of indexes: one for each process that indexes a tenant. The next process reuses the file."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import structlog

from callboard.bus.subjects import token

log = structlog.get_logger(__name__)

FOLDER = "index"
"""The folder of the files in the data directory."""

SLOTS_MAX = 8
"""The maximum number of processes with a file for one tenant at a time. Others have their index in memory."""


@contextmanager
def slot(folder: Path | None, tenant: str) -> Generator[Path | None]:
    """Provide a file that no other process uses during the block; None if no file is available."""
    lock = _lock_file(folder, tenant) if folder is not None else None
    if lock is None:
        yield None
        return
    path, descriptor = lock
    try:
        yield path
    finally:
        os.close(descriptor)


def _lock_file(folder: Path, tenant: str) -> tuple[Path, int] | None:
    try:
        # Only the owner may read the files, because they contain inputs and outputs of runs.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(SLOTS_MAX):
            path = folder / f"{token(tenant)}.{number}.sqlite"
            descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return path, descriptor
    except OSError as error:
        # An index in memory is as good, but the next process cannot reuse it.
        log.warning("the index is kept in memory", folder=str(folder), error=str(error))
    return None
