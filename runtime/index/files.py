"""The files of indexes: one for each process that has one of a tenant, kept for whichever process comes next."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import structlog

from callboard.bus.subjects import token

log = structlog.get_logger(__name__)

FOLDER = "index"
"""Where the files lie in the data directory."""

SLOTS_MAX = 8
"""Processes that have a file of one tenant at a time; others have theirs in memory."""


@contextmanager
def slot(folder: Path | None, tenant: str) -> Generator[Path | None]:
    """Have a file for the length of the block that no other process has; None where there is none to be had."""
    lock = _locked(folder, tenant) if folder is not None else None
    if lock is None:
        yield None
        return
    path, descriptor = lock
    try:
        yield path
    finally:
        os.close(descriptor)


def _locked(folder: Path, tenant: str) -> tuple[Path, int] | None:
    try:
        # It has what runs were given, and what they came to.
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
        # As good as before, only not for whoever comes next.
        log.warning("the index is kept in memory", folder=str(folder), error=str(error))
    return None
