"""Folders that files may be read from: a path is followed to the file itself, links included, before it is read."""

from pathlib import Path


class LeadsOutside(Exception):
    """A path leads out of the folder that it has to stay in."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(f"{name} leads out of {folder}")


def path_below(folder: Path, name: str | Path) -> Path:
    """Follow all links in the path of a file or folder below a folder; return the path where they lead.

    :raises LeadsOutside: if it is not below the folder, by ``..`` or by a link
    :raises FileNotFoundError: if there is no such file
    :raises OSError, ValueError, RuntimeError: if it cannot have a path: a loop of links, a NUL in the name
    """
    root = folder.resolve(strict=True)
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise LeadsOutside(str(name), root)
    return path.resolve(strict=True)
