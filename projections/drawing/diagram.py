"""The diagram of a run as data: the outline of its definition, coloured by the run's events."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from callboard.bus.events import Event, NodeEnter, NodeExit, Outline, Route, RunAccepted
from callboard.bus.paths import child, encode_id, last_id, parent
from callboard.projections.drawing.edges import Shown, Ways, holder
from callboard.projections.projection import known_payload

Direction = Literal["TB", "LR"]

NodeColour = Literal["current", "success", "failed", "skipped", "cancelled"]

NodeLook = Literal["current", "success", "failed", "skipped", "cancelled", "unreached", "plain"]
"""How a node is drawn. A node without a colour is unreached if any other node has a colour, else plain."""

_COLOUR_OF: dict[str, NodeColour] = {
    "ok": "success",
    "failed": "failed",
    "skipped": "skipped",
    "cancelled": "cancelled",
}

URGENCY: Sequence[NodeColour] = ("current", "failed", "cancelled", "success", "skipped")
"""Colours by priority, for a node that represents several executions."""


class Diagram(Struct, frozen=True):
    """An outline with the colour of each node, how often each edge (by index) was taken, the entry node, and how often
    each node was entered."""

    outline: Outline
    colours: dict[str, NodeColour]
    taken: dict[int, int]
    entry: str | None
    entered: dict[str, int] = {}


class DiagramFold:
    """Folds one run into a `Diagram`. Nodes that are not in the outline (inner nodes, the end) are left out.

    If one node of the outline represents several executions, as a node of a Gather's subflow does for all dispatches,
    it has the most urgent colour among them: running, then failed, then cancelled.
    """

    def __init__(self) -> None:
        self._outline = Outline()
        self._ways = Ways(self._outline)
        self._shown = Shown([])
        self._calls: dict[str, int] = {}
        self._boxes = Shown([])
        self._colours: dict[str, dict[str, NodeColour]] = {}
        self._taken: Counter[int] = Counter()
        self._entered: Counter[str] = Counter()
        self._entry: str | None = None
        self._node_at: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        match known_payload(event):
            case RunAccepted(outline=outline):
                self._outline = outline
                self._ways = Ways(outline)
                self._shown = Shown([node.id for node in outline.nodes])
                self._calls = _calls_of(outline)
                self._boxes = Shown(list(self._calls))
                self._entry = entry_of(outline)
            case NodeEnter(node=node):
                self._enter(event.path, node)
            case NodeExit(outcome=outcome):
                if (node := self._node_at.get(event.path)) is not None:
                    self._colours[node][event.path] = _COLOUR_OF[outcome]
            case Route() as route:
                index = self._edge(event.path, route)
                if index is not None:
                    self._taken[index] += 1
            case _:
                pass

    def view(self) -> Diagram:
        colours: dict[str, NodeColour] = {
            node: min(found.values(), key=URGENCY.index) for node, found in self._colours.items()
        }
        return Diagram(self._outline, colours, dict(self._taken), self._entry, dict(self._entered))

    def _edge(self, path: str, route: Route) -> int | None:
        """Find the edge by the names in the route, else, if the outline has paths, by the target next to ``path``."""
        index = self._ways.index(route.source, route.target, route.edge)
        here = self._shown.id_of(path)
        if index is None and here is not None:
            index = self._ways.index(here, child(parent(here), encode_id(route.target)), route.edge)
        return index

    def _enter(self, path: str, node: str) -> None:
        if (box := self._boxes.id_of(path)) is not None:
            self._taken[self._calls[box]] += 1
        shown = self._shown.id_of(path, node, last_id(path))
        if shown is None:
            return
        if not self._node_at:
            self._entry = shown
        self._node_at[path] = shown
        self._entered[shown] += 1
        self._colours.setdefault(shown, {})[path] = "current"


def _calls_of(outline: Outline) -> dict[str, int]:
    """Return the edges into subflows, by the path of the subflow. The log has no routes for them, only enters."""
    downward = [(index, edge) for index, edge in enumerate(outline.edges) if parent(edge.target) != parent(edge.source)]
    return {parent(edge.target): index for index, edge in downward if holder(parent(edge.target)) == edge.source}


def entry_of(outline: Outline) -> str | None:
    """Return the entry before the first enter: the first node without an incoming edge, else the first node."""
    targets = {edge.target for edge in outline.edges}
    ids = [node.id for node in outline.nodes]
    return next((name for name in ids if name not in targets), ids[0] if ids else None)


def look_of(diagram: Diagram, node: str) -> NodeLook:
    """Return how to draw a node."""
    return diagram.colours.get(node) or ("unreached" if diagram.colours else "plain")
