"""Frames: places in the code of a workflow, as ``file:line function``.

Files have the names that they have in the bundle, so that a place is the same on every machine.
"""

import asyncio
import contextlib
from types import FrameType, TracebackType

from callboard.languages.hosting import CELLS

_HERE = __file__.rpartition("/languages/")[0]
_OWN = (
    f"{_HERE}/",
    f"{asyncio.__file__.rpartition('/')[0]}/",
    contextlib.__file__,
    "<frozen",
)
"""The folders and files of code that does not belong to a workflow: Callboard and the standard library."""

_INSTALLED = ("/site-packages/", "/dist-packages/")
"""Folders of installed packages. An environment may lie in the folder of the bundle."""


def is_own(file: str) -> bool:
    """Return whether a file belongs to Callboard or to asyncio."""
    return file.startswith(_OWN)


def is_in_bundle(root: str, file: str) -> bool:
    """Return whether a file belongs to the bundle at ``root``."""
    return file.startswith(root) and not is_own(file) and not is_installed(file[len(root.rstrip("/")) :])


def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return any(folder in file for folder in _INSTALLED)


def where(root: str, frame: FrameType | None) -> str:
    """Return the place of the innermost frame in the bundle at ``root``, or an empty text."""
    while frame is not None:
        if is_in_bundle(root, frame.f_code.co_filename):
            return place(root, frame)
        frame = frame.f_back
    return ""


def place(root: str, frame: FrameType, line: int | None = None) -> str:
    """Return the place of a frame."""
    return f"{short(root, frame.f_code.co_filename)}:{line or frame.f_lineno} {frame.f_code.co_name}"


def short(root: str, file: str) -> str:
    """Return the name of a file in the bundle; of any other file the last part of its path."""
    if root == CELLS:
        return file if file.startswith(root) else file.rpartition("/")[2]
    return file[len(root) :].lstrip("/") if root and file.startswith(root) else file.rpartition("/")[2]


def raised_at(root: str, error: BaseException) -> list[str]:
    """Return the places in the bundle in an exception's traceback, the outermost first."""
    places: list[str] = []
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if is_in_bundle(root or "/", traceback.tb_frame.f_code.co_filename):
            places.append(place(root, traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return places
