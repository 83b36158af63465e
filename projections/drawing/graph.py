"""A graph in layers: its vertices by rank, with long edges cut into segments.

Boxes have even ranks and the labels of edges have odd ranks, so that labels do not overlap boxes. An edge that leads
back up is a *loop*: it leaves its box to the right, climbs in a lane, and enters from the right.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field


class Size(NamedTuple):
    """A width and a height in pixels."""

    width: float
    height: float


NOTHING = Size(0, 0)


class BoxLink(NamedTuple):
    """An edge between boxes, by their indices, with the size of its label. ``span`` is its minimum length in ranks.

    An edge with a label, or between two proper boxes, spans at least two ranks.
    """

    source: int
    target: int
    label: Size = NOTHING
    span: int = 2


LANE_FIRST_PX = 22.0
LANE_NEXT_PX = 14.0
"""The distance of the first lane from its box, and of each further lane from the previous one."""

THREAD_PX = 10.0
"""The space that an edge takes where it passes a rank."""

LONG_RANKS = 64
"""An edge over more ranks runs beside the rows, so that it is not in the way of all other edges."""

_AROUND_PX = 20.0
_AROUND_BETWEEN_PX = 6.0
_BESIDE_AROUND_PX = 16.0
"""For edges from a box to itself: the minimum height, the distance of two, the space for others above and below."""


class Vertex(Struct, gc=False):
    """A box or a point of an edge, on a rank. It extends ``left`` and ``right`` of its middle.

    A graph may have a hundred thousand vertices. They hold only numbers, so that the garbage collector can skip them.
    """

    rank: int
    left: float
    right: float
    height: float
    box: int | None = None
    x: float = 0.0


class Segment(NamedTuple):
    """A piece of an edge from a vertex to one a rank below. Lanes beside a box end at an offset from its middle."""

    upper: int
    lower: int
    upper_lane: float = 0.0
    lower_lane: float = 0.0
    loop: bool = False


class Chain(Struct):
    """The route of one link: its vertices from the upper box to the lower. ``label`` is the vertex with the label.

    ``loop`` is true if the link leads up; ``upper_lane`` and ``lower_lane`` are then the lanes beside its boxes.
    ``beside`` is true if it runs beside the rows between its second vertex and the last but one.
    """

    vertices: list[int]
    label: int | None
    loop: bool = False
    upper_lane: float = 0.0
    lower_lane: float = 0.0
    beside: bool = False

    @property
    def pieces(self) -> int:
        """Return the number of segments."""
        return len(self.vertices) - 1 - self.beside


class Layers(Struct):
    """The layers of a graph: vertices (boxes first, in their order), segments, a chain per link, and rows by rank.

    The chain of a link from a box to itself has only that box; its lane is ``upper_lane``.
    """

    vertices: list[Vertex] = field(default_factory=list[Vertex])
    segments: list[Segment] = field(default_factory=list[Segment])
    chains: list[Chain] = field(default_factory=list[Chain])
    rows: list[list[int]] = field(default_factory=list[list[int]])


def back_links(count: int, links: Sequence[BoxLink]) -> set[int]:
    """Return the links that lead back to an ancestor in a depth-first search, which starts at the first box."""
    out: list[list[int]] = [[] for _ in range(count)]
    for index, link in enumerate(links):
        out[link.source].append(index)
    back: set[int] = set()
    state = [0] * count
    for root in range(count):
        if state[root]:
            continue
        state[root] = 1
        stack = [(root, iter(out[root]))]
        while stack:
            here, rest = stack[-1]
            index = next(rest, None)
            if index is None:
                state[here] = 2
                stack.pop()
            elif state[links[index].target] == 1:
                back.add(index)
            elif state[links[index].target] == 0:
                target = links[index].target
                state[target] = 1
                stack.append((target, iter(out[target])))
    return back


def ranks(count: int, links: Sequence[BoxLink], back: set[int]) -> list[int]:
    """Return the rank of each box: below the lowest box that has a link to it.

    A box without incoming links is placed directly above the boxes that it links to.
    """
    down = [link for index, link in enumerate(links) if index not in back]
    waiting = [0] * count
    out: list[list[BoxLink]] = [[] for _ in range(count)]
    for link in down:
        waiting[link.target] += 1
        out[link.source].append(link)
    roots = [box for box in range(count) if not waiting[box]]
    found = [0] * count
    ready = list(roots)
    for box in ready:
        for link in out[box]:
            found[link.target] = max(found[link.target], found[box] + link.span)
            waiting[link.target] -= 1
            if not waiting[link.target]:
                ready.append(link.target)
    for box in roots:
        if out[box]:
            found[box] = max(0, min(found[link.target] - link.span for link in out[box]))
    return found


def around_px(label: Size) -> float:
    """Return the height that an edge from a box to itself takes at the side of the box."""
    return max(label.height, _AROUND_PX) + _AROUND_BETWEEN_PX


def grow_boxes(boxes: Sequence[Size], links: Sequence[BoxLink]) -> list[Size]:
    """Return the sizes of the boxes, high enough for their links to themselves, one below the other."""
    heights = [0.0] * len(boxes)
    for link in links:
        if link.source == link.target:
            heights[link.source] += around_px(link.label)
    beside = 2 * _BESIDE_AROUND_PX
    return [
        Size(box.width, max(box.height, height + beside)) if height else box
        for box, height in zip(boxes, heights, strict=True)
    ]


def cut_into_layers(boxes: Sequence[Size], links: Sequence[BoxLink]) -> Layers:
    """Cut a graph into layers."""
    back = back_links(len(boxes), links)
    rank = ranks(len(boxes), links, back)
    cut = Layers([Vertex(rank[i], box.width / 2, box.width / 2, box.height, i) for i, box in enumerate(boxes)])
    lanes = _lanes(boxes, links, back, rank)
    for index, link in enumerate(links):
        cut.chains.append(_chain(cut, link, index in back, *lanes.get(index, (0.0, 0.0))))
    top = max((vertex.rank for vertex in cut.vertices), default=-1)
    cut.rows = [[] for _ in range(top + 1)]
    for index, vertex in enumerate(cut.vertices):
        cut.rows[vertex.rank].append(index)
    return cut


def _lanes(
    boxes: Sequence[Size], links: Sequence[BoxLink], back: Iterable[int], rank: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Return the lanes of each loop beside its upper and its lower box. Shorter loops are nearer to the box.

    Loops around a single box share the first lane, with their labels right of it.
    """
    next_px = [box.width / 2 + LANE_FIRST_PX for box in boxes]
    lanes: dict[int, tuple[float, float]] = {}
    loops = sorted(back, key=lambda index: rank[links[index].source] - rank[links[index].target])
    around = [index for index in loops if links[index].source == links[index].target]
    for index in around:
        lanes[index] = next_px[links[index].source], next_px[links[index].source]
    for index in around:
        box, first = links[index].source, lanes[index][0]
        next_px[box] = max(next_px[box], first + 2 * THREAD_PX + links[index].label.width)
    for index in loops[len(around) :]:
        upper, lower = links[index].target, links[index].source
        lanes[index] = next_px[upper], next_px[lower]
        next_px[upper] += LANE_NEXT_PX
        next_px[lower] += LANE_NEXT_PX
    return lanes


def _chain(cut: Layers, link: BoxLink, back: bool, upper_lane: float, lower_lane: float) -> Chain:
    upper, lower = (link.target, link.source) if back else (link.source, link.target)
    for box, lane in ((upper, upper_lane), (lower, lower_lane)):
        cut.vertices[box].right = max(cut.vertices[box].right, lane + THREAD_PX / 2 if lane else 0.0)
    if upper == lower:
        # The label of a loop around a single box is to the right of the lane.
        beside = cut.vertices[upper]
        beside.right = max(beside.right, upper_lane + THREAD_PX + link.label.width)
        return Chain([upper], upper if link.label.width else None, True, upper_lane, upper_lane)
    top, bottom = cut.vertices[upper].rank, cut.vertices[lower].rank
    # Place the label where its link begins, next to the box that the link leaves.
    labelled = (bottom - 1 if back else top + 1) if link.label.width else None
    way = [upper]
    beside = bottom - top > LONG_RANKS
    for rank in (top + 1, bottom - 1) if beside else range(top + 1, bottom):
        size = link.label if rank == labelled else Size(THREAD_PX, 0)
        cut.vertices.append(Vertex(rank, size.width / 2, size.width / 2, size.height))
        way.append(len(cut.vertices) - 1)
    way.append(lower)
    for position, (above, below) in enumerate(pairwise(way)):
        if beside and position == 1:
            continue
        first, last = position == 0, position == len(way) - 2
        cut.segments.append(Segment(above, below, upper_lane if first else 0, lower_lane if last else 0, back))
    label = next((one for one in way[1:-1] if cut.vertices[one].rank == labelled), None)
    return Chain(way, label, back, upper_lane, lower_lane, beside)
