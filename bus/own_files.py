"""Files that only their owner can read: keys, tokens, addresses with a token in them.

They are written whole or not at all, whatever kills the writer: a key that is half there would be lost.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_own(path: Path, text: str, *, replaces: bool = True) -> None:
    """Write a file for its owner alone, in the place of one that may be there.

    :raises FileExistsError: if there is one, and it is not to be replaced
    :raises OSError: if it cannot be written
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            beside.replace(path)
        else:
            os.link(beside, path)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
