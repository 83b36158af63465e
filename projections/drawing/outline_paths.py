"""Outlines whose ids are paths: the node for the events at a path, and the nesting of nodes."""

import re
from collections.abc import Sequence

INNER = re.compile(r"[\[:].*$")
"""The part of a path's last segment after the id: the index of a dispatch, or the aspect of a call."""

_INDEX = re.compile(r"\[\d*\]")


class Shown:
    """The nodes of an outline, found by the paths of executions: ``fan[]/fetch`` matches any ``fan[3]/fetch``."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = frozenset(ids)
        self._for_many: dict[str, list[str]] = {}
        for one in ids:
            self._for_many.setdefault(_INDEX.sub("[]", one), []).append(one)

    def id_of(self, path: str, *names: str) -> str | None:
        """Return the node that represents a path, else the one with one of the names; None without one."""
        if path in self._ids:
            return path
        for one in self._for_many.get(_INDEX.sub("[]", path), []):
            places = zip(_INDEX.findall(one), _INDEX.findall(path), strict=True)
            if all(index in ("[]", found) for index, found in places):
                return one
        return next((name for name in names if name in self._ids), None)


def holder(box: str) -> str:
    """Return the node that a box belongs to."""
    head, slash, segment = box.rpartition("/")
    return f"{head}{slash}{INNER.sub('', segment)}"
