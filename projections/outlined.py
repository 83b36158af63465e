"""An outline of paths: which of its nodes stands for what happens at a path, and what stands inside of what."""

import re
from collections.abc import Sequence

INNER = re.compile(r"[\[:].*$")
"""What a path's last segment has behind the id: the index of a dispatch, the aspect of a call."""

_INDEX = re.compile(r"\[\d*\]")


class Shown:
    """The nodes of an outline, found by the paths of what they stand for: ``fan[]/fetch`` is any ``fan[3]/fetch``."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = frozenset(ids)
        self._for_many: dict[str, list[str]] = {}
        for one in ids:
            self._for_many.setdefault(_INDEX.sub("[]", one), []).append(one)

    def id_of(self, path: str, *names: str) -> str | None:
        """Return the node that stands for a path, or else has one of the names; None if there is none."""
        if path in self._ids:
            return path
        for one in self._for_many.get(_INDEX.sub("[]", path), []):
            places = zip(_INDEX.findall(one), _INDEX.findall(path), strict=True)
            if all(index in ("[]", found) for index, found in places):
                return one
        return next((name for name in names if name in self._ids), None)


def holder(box: str) -> str:
    """The node that what is inside of a box belongs to."""
    head, slash, segment = box.rpartition("/")
    return f"{head}{slash}{INNER.sub('', segment)}"
