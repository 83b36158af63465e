"""Certificate authorities that outgoing connections trust: those of this machine, read once per process.

Reading them takes longer than most requests. They are read again when the environment names others (``SSL_CERT_FILE``,
``SSL_CERT_DIR``), or when their file has changed.
"""

import os
import ssl
from functools import lru_cache


def trusted_context() -> ssl.SSLContext:
    """Return the context for clients. It is shared until the authorities change, so callers must not modify it."""
    paths = ssl.get_default_verify_paths()
    return _read(paths.cafile, paths.capath, _version(paths.cafile))


@lru_cache(maxsize=1)
def _read(_file: str | None, _folder: str | None, _version: tuple[int, int] | None) -> ssl.SSLContext:
    return ssl.create_default_context()


def _version(file: str | None) -> tuple[int, int] | None:
    if file is None:
        return None
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
