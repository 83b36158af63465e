"""The geometry of an outline: the positions of its nodes and edges, as data for clients that draw them themselves.

All positions are in pixels from the upper left corner. The geometry does not depend on a run, so that it is the same
for all runs of a definition.
"""

import hashlib

import msgspec
from msgspec import Struct

from callboard.bus.events import Outline
from callboard.projections.drawing.cards import Label, label
from callboard.projections.drawing.diagram import Direction, entry_of
from callboard.projections.drawing.edges import CAUGHT
from callboard.projections.drawing.graph import Size
from callboard.projections.drawing.layout import Point
from callboard.projections.drawing.scene import Drawn, EndMark, Placed, SceneLayout
from callboard.projections.drawing.strokes import way


class Node(Struct, frozen=True, omit_defaults=True):
    """A card, or a box around other nodes, with its upper left corner. A box precedes the nodes inside it.

    ``is_node`` is false for a box that is not a node of the outline.
    """

    id: str
    label: str
    lines: list[str]
    x: float
    y: float
    w: float
    h: float
    shape: str = "card"
    aside: str = ""
    is_node: bool = True


class Chip(Struct, frozen=True):
    """The rectangle of an edge's label, with its upper left corner."""

    x: float
    y: float
    w: float
    h: float


class Edge(Struct, frozen=True, rename={"source": "from", "target": "to"}, omit_defaults=True):
    """An edge: ``d`` is its line and ``head`` its arrowhead, as SVG path data; ``points`` are its bends.

    ``edge`` is its index in the outline. An edge from a start mark or to an end mark has no index and names only one
    node. ``caught`` is true if only failures take the edge.
    """

    edge: int | None
    source: str
    target: str
    d: str
    head: str
    points: list[tuple[float, float]]
    label: str = ""
    lines: list[str] = []
    at: Chip | None = None
    caught: bool = False


class Place(Struct, frozen=True, omit_defaults=True):
    """The centre of a mark: the start inside a node (of the whole outline, if unnamed), or the end after a node."""

    kind: str
    x: float
    y: float
    node: str = ""


class Geometry(Struct, frozen=True):
    """The layout of an outline. ``outline`` is the outline's hash."""

    outline: str
    direction: Direction
    width: float
    height: float
    nodes: list[Node]
    edges: list[Edge]
    marks: list[Place]


def outline_hash(outline: Outline) -> str:
    """Return the hash that identifies an outline: the sha256 of its JSON."""
    return hashlib.sha256(msgspec.json.encode(outline)).hexdigest()


def geometry(outline: Outline, direction: Direction = "TB") -> Geometry:
    """Lay out an outline."""
    labels = [label(edge.when or "", 0) for edge in outline.edges]
    scene = SceneLayout(outline, entry_of(outline), labels, across=direction == "LR").scene()
    names = {node.id: node.name.strip() or node.id for node in outline.nodes}
    return Geometry(
        outline=outline_hash(outline),
        direction=direction,
        width=round(scene.size.width, 1),
        height=round(scene.size.height, 1),
        nodes=[_node(placed, names) for placed in scene.placed],
        edges=[_edge(drawn, outline, labels) for drawn in scene.drawn],
        marks=[_mark(mark) for mark in scene.marks],
    )


def _corner(centre: Point, size: Size) -> Chip:
    x, y = centre.x - size.width / 2, centre.y - size.height / 2
    return Chip(round(x, 1), round(y, 1), round(size.width, 1), round(size.height, 1))


def _node(placed: Placed, names: dict[str, str]) -> Node:
    room = _corner(placed.centre, placed.size)
    return Node(
        id=placed.key,
        label=names.get(placed.key, placed.key),
        lines=placed.card.name,
        x=room.x,
        y=room.y,
        w=room.w,
        h=room.h,
        shape="box" if placed.inner else "card",
        aside=placed.card.aside,
        is_node=placed.is_node,
    )


def _edge(drawn: Drawn, outline: Outline, labels: list[Label]) -> Edge:
    head, line = way(drawn.route)
    bends = [drawn.route.start, *(step[-1] for step in drawn.route.steps)]
    points = [(round(point.x, 1), round(point.y, 1)) for point in bends]
    if drawn.edge is None:
        source, target = ("", drawn.node) if drawn.begins else (drawn.node, "")
        return Edge(None, source, target, line, head, points)
    edge, told, middle = outline.edges[drawn.edge], labels[drawn.edge], drawn.route.label
    return Edge(
        edge=drawn.edge,
        source=edge.source,
        target=edge.target,
        d=line,
        head=head,
        points=points,
        label=(edge.when or "").strip(),
        lines=told.lines if middle else [],
        at=_corner(middle, told.size) if middle else None,
        caught=(edge.when or "").startswith(CAUGHT),
    )


def _mark(mark: EndMark) -> Place:
    x, y = round(mark.centre.x, 1), round(mark.centre.y, 1)
    return Place("begin", x, y, mark.of or "") if mark.after is None else Place("end", x, y, mark.after)
