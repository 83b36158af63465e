"""What installed packages declare: their entry points, and their versions.

For each state of `sys.path`, the answer to a question is kept: it takes a file per package to find it, and every worker
that starts asks.
"""

import sys
from functools import cache
from importlib import metadata


def entry_points(*, group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group; of two packages of the same name, the first on the import path counts."""
    return list(_entry_points(group, tuple(sys.path)))


def version(package: str) -> str:
    """Return the version of an installed package.

    :raises importlib.metadata.PackageNotFoundError: if it is not installed
    """
    return _version(package, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> metadata.EntryPoints:
    return metadata.entry_points(group=group)


@cache
def _version(package: str, path: tuple[str, ...]) -> str:
    return metadata.version(package)
