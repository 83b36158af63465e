"""The layout of a graph in rows, top to bottom or left to right: positions of its boxes and routes of its edges.

All positions are in pixels from the upper left corner. An edge consists of straight and curved steps. It never crosses
a box, and its label lies on it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from callboard.projections.drawing.graph import THREAD_PX, BoxLink, Chain, Layers, Size, cut_into_layers, grow_boxes
from callboard.projections.drawing.positions import order, place
from callboard.projections.drawing.routes import (
    ACROSS_PX,
    Lane,
    gaps_crossed,
    lanes_beside,
    ports_of,
    sides,
    stack_self_links,
    straighten_ports,
    widen_loops,
)

GAP_PX = 24.0
GAP_MAX_PX = 44.0
"""The distance between two rows. It is larger where edges move far sideways, so that they do not become too flat."""

_GAP_PER_ASIDE = 0.09
_CORNER_PX = 9.0
_AROUND_HALF_PX = 9.0
_STRAIGHT_PX = 10.0


class Point(NamedTuple):
    """A position in the drawing."""

    x: float
    y: float


Way = tuple[Point, ...]
"""A step of an edge: one point of a straight line, or two controls and the point of a cubic curve."""


class EdgeRoute(Struct, frozen=True):
    """The route of an edge. ``label`` is the middle of its label."""

    start: Point
    steps: list[Way]
    label: Point | None


class Layout(Struct, frozen=True):
    """The layout of a graph: its size, the size and the middle of each box, the route of each link.

    A box may be larger than requested, to have space for its links to itself.
    """

    size: Size
    boxes: list[Size]
    centres: list[Point]
    routes: list[EdgeRoute]


def lay_out(boxes: Sequence[Size], links: Sequence[BoxLink], *, across: bool = False) -> Layout:
    """Lay out a graph, with its rows from top to bottom, or with ``across`` from left to right."""
    if across:
        turned = [link._replace(label=Size(*reversed(link.label))) for link in links]
        return _transpose(_lay_out_rows([Size(*reversed(box)) for box in boxes], turned))
    return _lay_out_rows(boxes, links)


def _lay_out_rows(boxes: Sequence[Size], links: Sequence[BoxLink]) -> Layout:
    boxes = grow_boxes(boxes, links)
    cut = cut_into_layers(boxes, links)
    order(cut)
    ports = ports_of(cut, boxes)
    place(cut, ports)
    widen_loops(cut)
    straighten_ports(cut, ports, boxes)
    plan = _Plan(cut, boxes, links, ports)
    segment = 0
    routes: list[EdgeRoute] = []
    for index, chain in enumerate(cut.chains):
        last = segment + chain.pieces - 1
        if not chain.loop:
            routes.append(plan.route_down(index, ports[segment][0], ports[last][1]))
        elif len(chain.vertices) == 1:
            routes.append(plan.around(chain, links[index].label, plan.around_y[index]))
        else:
            routes.append(plan.up(index, *plan.sides[index]))
        segment = last + 1
    return Layout(Size(plan.width, plan.rows[-1][1] if plan.rows else 0.0), boxes, plan.centres, routes)


def _rows(cut: Layers, ports: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the top and the bottom of each row."""
    aside = [0.0] * len(cut.rows)
    for piece, (upper, lower) in zip(cut.segments, ports, strict=True):
        rank = cut.vertices[piece.upper].rank
        apart = abs(cut.vertices[piece.upper].x + upper - cut.vertices[piece.lower].x - lower)
        aside[rank] = max(aside[rank], apart)
    across = gaps_crossed(cut)
    found: list[tuple[float, float]] = []
    y = 0.0
    for rank, row in enumerate(cut.rows):
        bottom = y + max((cut.vertices[vertex].height for vertex in row), default=0.0)
        found.append((y, bottom))
        y = bottom + min(GAP_MAX_PX, max(GAP_PX, aside[rank] * _GAP_PER_ASIDE)) + across[rank] * ACROSS_PX
    return found


class _Plan:
    """The positions of rows and boxes after they were placed, with methods that draw the routes of chains."""

    def __init__(
        self, cut: Layers, boxes: Sequence[Size], links: Sequence[BoxLink], ports: list[tuple[float, float]]
    ) -> None:
        self._cut = cut
        self._boxes = boxes
        self.rows = _rows(cut, ports)
        self.centres = [Point(vertex.x, sum(self.rows[vertex.rank]) / 2) for vertex in cut.vertices[: len(boxes)]]
        width = max((vertex.x + vertex.right for vertex in cut.vertices), default=0.0)
        self._lanes, self.width = lanes_beside(cut, self.rows, width)
        self.around_y, heights = stack_self_links(links)
        self.sides = sides(cut, boxes, heights)

    def route_down(self, index: int, upper_port: float, lower_port: float) -> EdgeRoute:
        """Return the route out of the bottom of the upper box and into the top of the lower one."""
        chain = self._cut.chains[index]
        first, last = chain.vertices[0], chain.vertices[-1]
        x = self._x(first) + upper_port
        start = Point(x, self.centres[first].y + self._boxes[first].height / 2)
        steps: list[Way] = [(Point(x, self._row(first)[1]),)]
        for point, vertex in enumerate(chain.vertices[1:-1]):
            top, bottom = self._row(vertex)
            x = self._x(vertex)
            if chain.beside and point:
                steps += _around_the_rows(steps[-1][-1], self._lanes[index], Point(x, top))
                steps.append((Point(x, bottom),))
            else:
                _go(steps, Point(x, top), bottom)
        x = self._x(last) + lower_port
        # The last piece is straight, so that the arrowhead points in the direction of the line.
        steps.append(_curve(steps[-1][-1], Point(x, self._row(last)[0] - _STRAIGHT_PX)))
        steps.append((Point(x, self.centres[last].y - self._boxes[last].height / 2),))
        return EdgeRoute(start, steps, self._label(chain))

    def up(self, index: int, out: float, back: float) -> EdgeRoute:
        """Return the route out of the right side of the lower box, up, and into the right side of the upper one."""
        chain = self._cut.chains[index]
        upper, lower = chain.vertices[0], chain.vertices[-1]
        out, back = self.centres[lower].y + out, self.centres[upper].y + back
        x = self._x(lower) + chain.lower_lane
        start = Point(self._x(lower) + self._boxes[lower].width / 2, out)
        steps: list[Way] = [
            (Point(x - _CORNER_PX, out),),
            (Point(x, out), Point(x, out), Point(x, out - _CORNER_PX)),
            (Point(x, self._row(lower)[0]),),
        ]
        for point, vertex in enumerate(chain.vertices[-2:0:-1]):
            top, bottom = self._row(vertex)
            x = self._x(vertex)
            if chain.beside and point:
                steps += _around_the_rows(steps[-1][-1], self._lanes[index], Point(x, bottom))
                steps.append((Point(x, top),))
            else:
                _go(steps, Point(x, bottom), top)
        x = self._x(upper) + chain.upper_lane
        steps += [
            _curve(steps[-1][-1], Point(x, self._row(upper)[1])),
            (Point(x, back + _CORNER_PX),),
            (Point(x, back), Point(x, back), Point(x - _CORNER_PX, back)),
            (Point(self._x(upper) + self._boxes[upper].width / 2, back),),
        ]
        return EdgeRoute(start, steps, self._label(chain))

    def around(self, chain: Chain, label: Size, y: float) -> EdgeRoute:
        """Return the route out of the right side of a box and back into it; its middle is ``y`` below the box's."""
        centre, box = self.centres[chain.vertices[0]], self._boxes[chain.vertices[0]]
        side, x = centre.x + box.width / 2, centre.x + chain.upper_lane
        out, back = centre.y + y - _AROUND_HALF_PX, centre.y + y + _AROUND_HALF_PX
        corner = _CORNER_PX
        steps: list[Way] = [
            (Point(x - corner, out),),
            (Point(x, out), Point(x, out), Point(x, out + corner)),
            (Point(x, back - corner),),
            (Point(x, back), Point(x, back), Point(x - corner, back)),
            (Point(side, back),),
        ]
        middle = Point(x + THREAD_PX + label.width / 2, centre.y + y) if label.width else None
        return EdgeRoute(Point(side, out), steps, middle)

    def _x(self, vertex: int) -> float:
        return self._cut.vertices[vertex].x

    def _row(self, vertex: int) -> tuple[float, float]:
        return self.rows[self._cut.vertices[vertex].rank]

    def _label(self, chain: Chain) -> Point | None:
        return Point(self._x(chain.label), sum(self._row(chain.label)) / 2) if chain.label is not None else None


def _around_the_rows(start: Point, lane: Lane, end: Point) -> list[Way]:
    """Return the steps of an edge that leaves between two rows, follows a lane, and returns between two others."""
    down = 1 if start.y < end.y else -1
    out, back = (lane.upper, lane.lower)[::down]
    x, corner = lane.x, _CORNER_PX
    near = min(corner, abs(out - start.y)) * down
    far = min(corner, abs(end.y - back)) * down
    return [
        (Point(start.x, out - near),),
        (Point(start.x, out), Point(start.x, out), Point(start.x + corner, out)),
        (Point(x - corner, out),),
        (Point(x, out), Point(x, out), Point(x, out + corner * down)),
        (Point(x, back - corner * down),),
        (Point(x, back), Point(x, back), Point(x - corner, back)),
        (Point(end.x + corner, back),),
        (Point(end.x, back), Point(end.x, back), Point(end.x, back + far)),
        (end,),
    ]


def _go(steps: list[Way], first: Point, end: float) -> None:
    """Append steps to a point and straight down or up from there. A line that is already straight is extended."""
    before = steps[-1]
    if len(before) == 1 and before[0].x == first.x:
        steps[-1] = (Point(first.x, end),)
    else:
        steps += [_curve(before[-1], first), (Point(first.x, end),)]


def _curve(start: Point, end: Point) -> Way:
    """Return a step down or up, which is straight if the end is directly below or above the start."""
    if abs(start.x - end.x) < 0.5:
        return (Point(end.x, end.y),)
    middle = (start.y + end.y) / 2
    return Point(start.x, middle), Point(end.x, middle), end


def _transpose(layout: Layout) -> Layout:
    """Swap the horizontal and the vertical direction."""

    def turn(point: Point) -> Point:
        return Point(point.y, point.x)

    routes = [
        EdgeRoute(
            turn(route.start),
            [tuple(turn(point) for point in step) for step in route.steps],
            turn(route.label) if route.label else None,
        )
        for route in layout.routes
    ]
    return Layout(
        Size(layout.size.height, layout.size.width),
        [Size(*reversed(box)) for box in layout.boxes],
        [turn(centre) for centre in layout.centres],
        routes,
    )
