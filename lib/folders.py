"""Folders that files may be read from: all links of a path are resolved before the file is read."""

from pathlib import Path


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
