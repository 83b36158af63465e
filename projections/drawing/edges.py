"""The edges of an outline that routes follow, and its nodes where their ids are paths."""

import re
from collections.abc import Sequence

from callboard.bus.events import Outline, OutlineEdge, Route

DEFAULT = "default"
CAUGHT = "catch "
"""The prefix of the condition of an edge that only failures take."""


class Ways:
    """The edges of an outline, by the node that they lead from."""

    def __init__(self, outline: Outline) -> None:
        self._edges: Sequence[OutlineEdge] = outline.edges
        self._from: dict[str, list[int]] = {}
        for index, edge in enumerate(outline.edges):
            self._from.setdefault(edge.source, []).append(index)

    def index(self, source: str, target: str, edge: int | str | None) -> int | None:
        """Return the index of the edge between two nodes, or None.

        ``edge`` selects one of several: it is an index into the outline; or ``case.1`` or ``catch.0``, a position among
        the node's edges or among those for failures; or ``default`` or ``next``, the edge without a condition. If
        ``edge`` is None, or the edge does not lead to ``target``, the first edge between the nodes is returned.
        """
        ways = self._from.get(source, [])
        between = [index for index in ways if self._edges[index].target == target]
        said = self._select(ways, edge)
        return next((index for index in said if index in between), next(iter(between), None))

    def _select(self, ways: Sequence[int], edge: int | str | None) -> Sequence[int]:
        if isinstance(edge, int):
            return [edge]
        plain = [index for index in ways if not self._edges[index].when]
        word, _, place = (edge or "").partition(".")
        match word:
            case "default" | "next":
                return plain or [index for index in ways if self._edges[index].when == DEFAULT]
            case "case" | "catch" if place.isdigit():
                caught = [index for index in ways if (self._edges[index].when or "").startswith(CAUGHT)]
                return (caught if word == "catch" else ways)[int(place) : int(place) + 1]
            case _:
                return []


def edge_index(outline: Outline, route: Route) -> int | None:
    """Return the index of the edge that a route followed, by the names in the route, or None."""
    return Ways(outline).index(route.source, route.target, route.edge)


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
