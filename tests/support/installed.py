"""The packages of the environment that others need, by what their metadata says."""

from collections.abc import Iterable
from importlib.metadata import requires

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
