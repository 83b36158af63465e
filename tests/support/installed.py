"""The packages of this environment: which ones others need, and links to them in another environment."""

import os
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions, files, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(wanted: Iterable[str]) -> set[str]:
    """Return the names of all packages that requirements bring with them on this machine."""
    open_ = [(Requirement(words), "") for words in wanted]
    met: set[tuple[str, str]] = set()
    while open_:
        one, extra = open_.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(one.name)
        for more in {"", *one.extras}:
            if (name, more) not in met:
                met.add((name, more))
                open_ += [(Requirement(words), more) for words in requires(name) or []]
    return {name for name, _ in met}


def link(wanted: set[str], environment: Path) -> None:
    """Link packages of this environment into another one: folders whole that no other package has files in."""
    site = Path(sysconfig.get_path("purelib"))
    there = environment / site.relative_to(sys.prefix)
    owners: defaultdict[Path, set[str]] = defaultdict(set)
    for found in distributions():
        name = canonicalize_name(found.name)
        for folder in {folder for file in found.files or [] for folder in file.parents}:
            owners[Path(folder)].add(name)
    for name in wanted:
        paths = [Path(file) for file in files(name) or [] if "__pycache__" not in file.parts]
        for path in {_whole(path, owners) for path in paths}:
            place = Path(os.path.normpath(there / path))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(os.path.normpath(site / path))


def _whole(path: Path, owners: Mapping[Path, set[str]]) -> Path:
    """Return the topmost folder of a file that belongs to one package, or the file."""
    own = [folder for folder in path.parents if len(owners[folder]) == 1 and ".." not in folder.parts]
    return own[-1] if own else path
