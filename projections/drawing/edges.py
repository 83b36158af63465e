"""The edges of an outline that routes follow."""

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
        """Return the index of the edge between two nodes; None if there is no such edge.

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
    """Return the index of the edge that a route followed, by the names in the route; None if there is no such edge."""
    return Ways(outline).index(route.source, route.target, route.edge)
