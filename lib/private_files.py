"""Files that only their owner can read: keys, tokens, addresses that contain a token.

They are written atomically. If the writer crashes, the file has its old content or the new one, never half of a key.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_own(path: Path, text: str, *, replaces: bool = True) -> None:
    """Write a file that only its owner can read. With ``replaces`` an existing file is replaced.

    :raises FileExistsError: if the file exists, and ``replaces`` is False
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


class LeadsOutside(Exception):
    """A path leads outside the folder that it must stay in."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(f"{name} leads out of {folder}")


def path_below(folder: Path, name: str | Path) -> Path:
    """Resolve all links in the path of a file or folder below a folder; return the resolved path.

    :raises LeadsOutside: if the path leads outside the folder, by ``..`` or by a link
    :raises FileNotFoundError: if the file does not exist
    :raises OSError, ValueError, RuntimeError: if the path cannot be resolved, such as a loop of links or a NUL
    """
    root = folder.resolve(strict=True)
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise LeadsOutside(str(name), root)
    return path.resolve(strict=True)
