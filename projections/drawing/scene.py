"""The layout of a diagram: its cards, the boxes around the inner nodes of a node, and its edges, with their positions.

A node is inside the node whose path is the nearest one above its own: ``main/fetch:call/send`` in ``main/fetch``. If a
node contains several subflows (``main/fan[0]/a``, ``main/fan[1]/b``), each has a box, and so does each group of nodes
whose container is not drawn. Every level is laid out separately and is one box in the level above. An edge between
levels runs between the boxes of the level that contains both ends.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from callboard.bus.events import Outline, OutlineNode
from callboard.projections.drawing.cards import Card, Label, card
from callboard.projections.drawing.graph import NOTHING, BoxLink, Size
from callboard.projections.drawing.layout import EdgeRoute, Point, lay_out
from callboard.projections.trace.node_tree import above

DEPTH_MAX = 8
"""The maximum depth. Deeper levels are drawn on this one."""

ROOT = None
"""The level above all nodes; a node's id may be empty."""


def parents(ids: Sequence[str]) -> dict[str, str | None]:
    """Return the container of each node, `ROOT` if it has none. The keys include boxes that are not nodes."""
    known = set(ids)
    boxes = known | _find_boxes(ids)
    found: dict[str, str | None] = {}
    depths: dict[str | None, int] = {ROOT: 0}
    # Outer ones first, so that the depth of a container is known before its contents are placed.
    for key in sorted(boxes, key=len):
        inside = (one for one in above(key) if one in boxes and depths[one] < DEPTH_MAX)
        found[key] = next(inside, ROOT)
        depths[key] = depths[found[key]] + 1
    place = {key: index for index, key in enumerate(ids)}
    for index, key in enumerate(ids):
        for box in _chain(found, key):
            place.setdefault(box, index)
    return {key: found[key] for key in sorted(found, key=lambda key: place.get(key, 0))}


def _find_boxes(ids: Sequence[str]) -> set[str]:
    """Return the boxes that are not nodes: around several nodes, but not around all nodes."""
    known = set(ids)
    inside: dict[str, int] = {}
    for key in ids:
        if (box := key.rpartition("/")[0]) and box not in known:
            inside[box] = inside.get(box, 0) + 1
    around = {box: next((one for one in above(box) if one in known), ROOT) for box in inside}
    found: set[str] = set()
    for box, count in inside.items():
        node = around[box]
        of_a_node = node is not None and "/" not in box[len(node) :]
        alone = of_a_node and list(around.values()).count(around[box]) == 1
        everything = all(key.startswith(f"{box}/") for key in ids)
        if count > 1 and not alone and not everything:
            found.add(box)
    return found


def _chain(found: dict[str, str | None], key: str) -> Iterator[str]:
    parent = found[key]
    while parent is not None:
        yield parent
        parent = found[parent]


DOT = Size(14, 14)
"""The size of a start mark and of an end mark."""

_BOX_PADDING_PX = 22.0
_BOX_HEAD_PX = 14.0


class Placed(Struct, frozen=True):
    """A card or a box, with the position of its middle.

    ``inner`` is true for a box around other nodes. ``is_node`` is true if it is a node of the outline.
    """

    key: str
    centre: Point
    size: Size
    card: Card
    inner: bool = False
    is_node: bool = True


class EndMark(Struct, frozen=True):
    """The start mark of a level (``of`` that box, or of the whole diagram), or the end mark ``after`` a node."""

    centre: Point
    of: str | None = ROOT
    after: str | None = None


class Drawn(Struct, frozen=True):
    """A route. ``edge`` is the index of the outline's edge. A route from or to a mark has none and names its node."""

    route: EdgeRoute
    edge: int | None
    node: str = ""
    begins: bool = False


class Scene(Struct):
    """All parts of a diagram with their positions. A box precedes the nodes inside it."""

    size: Size
    placed: list[Placed] = field(default_factory=list[Placed])
    marks: list[EndMark] = field(default_factory=list[EndMark])
    drawn: list[Drawn] = field(default_factory=list[Drawn])


class _Link(Struct, frozen=True):
    """An edge on its level. If ``source`` or ``target`` is None, the edge starts or ends at the level itself."""

    edge: int
    source: str | None
    target: str | None


class SceneLayout:
    """Lays out an outline, level by level."""

    def __init__(self, outline: Outline, entry: str | None, labels: Sequence[Label], *, across: bool) -> None:
        self._labels = labels
        self._across = across
        self._entry = entry
        self._nodes = {node.id: node for node in outline.nodes}
        self._parents = parents(list(self._nodes))
        self._children: dict[str | None, list[str]] = {}
        for key, parent in self._parents.items():
            self._children.setdefault(parent, []).append(key)
        self._links: dict[str | None, list[_Link]] = {}
        for index, edge in enumerate(outline.edges):
            if edge.source in self._nodes and edge.target in self._nodes:
                level, link = self._lift(index, edge.source, edge.target)
                self._links.setdefault(level, []).append(link)

    def scene(self, level: str | None = ROOT) -> Scene:
        """Lay out the inside of a node, or the whole outline."""
        keys = self._children.get(level, [])
        inner = {key: self.scene(key) for key in keys if key in self._children}
        cards = {key: card(self._nodes.get(key) or OutlineNode(key)) for key in keys}
        links = self._links.get(level, [])
        begins = self._begins(level, keys, links)
        ends = self._ends(level, keys, links)
        sizes = [_box(cards[key], inner[key].size) if key in inner else cards[key].size for key in keys]
        at = {key: place for place, key in enumerate(keys, 1)}
        end_at = {key: place for place, key in enumerate(ends, len(keys) + 1)}
        wires = [
            BoxLink(
                0 if link.source is None else at[link.source],
                end_at[link.source or ""] if link.target is None else at[link.target],
                # An edge from the level itself needs no label: the box around its target shows the call.
                self._labels[link.edge].size if link.source is not None else NOTHING,
                span=2 if link.source is not None else 1,
            )
            for link in links
        ]
        explicit = {link.source for link in links if link.target is None}
        marked = [key for key in ends if key not in explicit]
        wires += [BoxLink(0, at[key], span=1) for key in begins]
        wires += [BoxLink(at[key], end_at[key], span=1) for key in marked]
        layout = lay_out([DOT if keys else NOTHING, *sizes, *(DOT for _ in ends)], wires, across=self._across)
        scene = Scene(layout.size)
        for key in keys:
            placed = Placed(
                key, layout.centres[at[key]], layout.boxes[at[key]], cards[key], key in inner, key in self._nodes
            )
            self._put(scene, placed, inner.get(key))
        starts = any(wire.source == 0 for wire in wires)
        scene.marks += [EndMark(layout.centres[0], level)] if starts else []
        scene.marks += [EndMark(layout.centres[end_at[key]], after=key) for key in ends]
        whose: list[tuple[int | None, str, bool]] = [(link.edge, "", False) for link in links]
        whose += [(None, key, True) for key in begins] + [(None, key, False) for key in marked]
        scene.drawn += [Drawn(route, *who) for route, who in zip(layout.routes, whose, strict=True)]
        return scene

    def _put(self, scene: Scene, placed: Placed, inner: Scene | None) -> None:
        """Add a card to a scene, with everything inside it."""
        scene.placed.append(placed)
        if inner is None:
            return
        left = placed.centre.x - inner.size.width / 2
        top = placed.centre.y - placed.size.height / 2 + head_px(placed.card) + _BOX_PADDING_PX
        scene.placed += [_shift_card(one, left, top) for one in inner.placed]
        scene.marks += [EndMark(_shift_point(one.centre, left, top), one.of, one.after) for one in inner.marks]
        scene.drawn += [
            Drawn(_shift_route(one.route, left, top), one.edge, one.node, one.begins) for one in inner.drawn
        ]

    def _begins(self, level: str | None, keys: list[str], links: list[_Link]) -> list[str]:
        """Return the first node of a level, unless edges from the level itself show where it begins."""
        if not keys or any(link.source is None for link in links) or (level is not ROOT and len(keys) < 2):
            return []
        if level is ROOT and self._entry in self._nodes:
            return [self._ancestry(self._entry)[0]]
        reached = {link.target for link in links if link.target != link.source}
        return [next((key for key in keys if key not in reached), keys[0])]

    def _ends(self, level: str | None, keys: list[str], links: list[_Link]) -> list[str]:
        """Return the last nodes of a level: those without outgoing edges, or with an edge to the end."""
        left = {link.source for link in links if link.target != link.source and link.target is not None}
        explicit = {link.source for link in links if link.target is None}
        lonely = level is not ROOT and len(keys) < 2
        return [key for key in keys if key in explicit or (key not in left and not lonely)]

    def _lift(self, index: int, source: str, target: str) -> tuple[str | None, _Link]:
        """Return the level that holds both ends of an edge, and the edge there."""
        sources, targets = self._ancestry(source), self._ancestry(target)
        common = 0
        while common < min(len(sources), len(targets)) and sources[common] == targets[common]:
            common += 1
        if source == target:
            common -= 1
        level = sources[common - 1] if common else ROOT
        return level, _Link(
            index,
            sources[common] if common < len(sources) else None,
            targets[common] if common < len(targets) else None,
        )

    def _ancestry(self, key: str) -> list[str]:
        """Return the boxes around a node, the outermost first, and the node."""
        found = [key]
        while (parent := self._parents[found[-1]]) is not None:
            found.append(parent)
        return found[::-1]


def _box(head: Card, inner: Size) -> Size:
    """Return the size of a box: its card as a head, and its contents below."""
    width = max(head.size.width, inner.width + 2 * _BOX_PADDING_PX)
    return Size(width, head_px(head) + inner.height + 2 * _BOX_PADDING_PX)


def head_px(head: Card) -> float:
    """Return the height of a box's head."""
    return head.size.height - _BOX_HEAD_PX


def _shift_point(point: Point, x: float, y: float) -> Point:
    return Point(point.x + x, point.y + y)


def _shift_card(one: Placed, x: float, y: float) -> Placed:
    return Placed(one.key, _shift_point(one.centre, x, y), one.size, one.card, one.inner, one.is_node)


def _shift_route(route: EdgeRoute, x: float, y: float) -> EdgeRoute:
    steps = [tuple(_shift_point(point, x, y) for point in step) for step in route.steps]
    return EdgeRoute(_shift_point(route.start, x, y), steps, _shift_point(route.label, x, y) if route.label else None)
