"""Installed modules, and the declarations of installed packages: their entry points, and their versions.

It takes a file per package to find that, and every process that starts asks: answers are kept for as long as the same
folders of the import path hold packages. `importlib.metadata` is imported only if a package has the declaration.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ABOUT_PACKAGES = (".dist-info", ".egg-info")
"""How the names end of what describes a package in a folder of the import path."""


def entry_points(*, group: str) -> list["EntryPoint"]:
    """Return the entry points of a group; of two packages of the same name, the first on the import path counts."""
    return list(_entry_points(group, _folders()))


def version(package: str) -> str:
    """Return the version of an installed package.

    :raises importlib.metadata.PackageNotFoundError: if it is not installed
    """
    return _version(package, _folders())


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing more than the packages around it."""
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # a package around it is missing; it is marked as absent
        return False


@cache
def own_version() -> str:
    """Return the version of Callboard, as of the first call."""
    return version("callboard")


def _folders() -> tuple[str, ...]:
    """Return the folders of the import path that hold packages; an archive may."""
    folders = [folder or os.getcwd() for folder in sys.path]
    return tuple(folder for folder in folders if _holds_packages(folder))


def _holds_packages(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(ABOUT_PACKAGES) for entry in entries)
    except NotADirectoryError:
        return True
    except OSError:
        return False


@cache
def _entry_points(group: str, folders: tuple[str, ...]) -> Sequence["EntryPoint"]:
    declared = _declarations(folders)
    if declared is not None and f"[{group}]".encode() not in declared:
        return ()

    from importlib import metadata

    return tuple(metadata.entry_points(group=group))


@cache
def _declarations(folders: tuple[str, ...]) -> bytes | None:
    """Return the entry points of all packages, as they are written; None if an archive may have further ones."""
    if not all(map(os.path.isdir, folders)):
        return None
    described = [entry for folder in folders for entry in os.scandir(folder) if entry.name.endswith(ABOUT_PACKAGES)]
    return b"\n".join(map(_read_entry_points, described))


def _read_entry_points(described: os.DirEntry[str]) -> bytes:
    try:
        with open(os.path.join(described.path, "entry_points.txt"), "rb") as file:
            return file.read()
    except OSError:
        return b""  # it has none


@cache
def _version(package: str, folders: tuple[str, ...]) -> str:
    from importlib import metadata

    return metadata.version(package)
