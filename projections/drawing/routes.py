"""The routes of edges: their ends at the boxes, and lanes beside the rows.

An edge ends at a port above or below a box; loops leave and enter at the sides. An edge that is too long to run
through all the rows between its boxes takes a lane beside them.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from callboard.projections.drawing.graph import BoxLink, Layers, Size, around_px

_PORT_PX = 26.0
"""The distance of two edges that leave a box on the same side."""

_PORT_ASIDE_MAX_PX = 16.0
"""The maximum distance that a port moves to make its edge straight."""

_CORNER_PX = 9.0
"""The minimum distance of a port from a corner of its box."""

_REACH_MAX_PX = 20.0
"""The maximum distance of the end of a loop from the middle of the box's side."""


def ports_of(cut: Layers, boxes: Sequence[Size]) -> list[tuple[float, float]]:
    """Return the offsets of each segment's ends from the middles of its vertices, spread in the order of the rows."""
    place = {vertex: position for row in cut.rows for position, vertex in enumerate(row)}
    found = [[piece.upper_lane, piece.lower_lane] for piece in cut.segments]
    for end in (0, 1):
        ends = [(piece.upper, piece.lower)[end] for piece in cut.segments]
        others = [(piece.lower, piece.upper)[end] for piece in cut.segments]
        at: dict[int, list[int]] = {}
        for index, box in enumerate(ends):
            if not found[index][end] and box < len(boxes):
                at.setdefault(box, []).append(index)
        for box, pieces in at.items():
            pieces.sort(key=lambda index: place[others[index]])
            between = min(_PORT_PX, boxes[box].width * 0.6 / max(1, len(pieces) - 1))
            for position, index in enumerate(pieces):
                found[index][end] = (position - (len(pieces) - 1) / 2) * between
    return [(upper, lower) for upper, lower in found]


def straighten_ports(cut: Layers, ports: list[tuple[float, float]], boxes: Sequence[Size]) -> None:
    """Move ports that are alone on their side a little, if that makes an edge straight."""
    alone = [Counter(piece[end] for piece in cut.segments if not piece[2 + end]) for end in (0, 1)]
    for index, piece in enumerate(cut.segments):
        uppermost, lowermost = ports[index]
        apart = cut.vertices[piece.lower].x + lowermost - cut.vertices[piece.upper].x - uppermost
        if not apart:
            continue
        for end, vertex in ((0, piece.upper), (1, piece.lower)):
            if vertex >= len(boxes) or alone[end][vertex] != 1 or piece[2 + end]:
                continue
            if abs(apart) <= min(_PORT_ASIDE_MAX_PX, boxes[vertex].width / 2 - _CORNER_PX):
                ports[index] = (uppermost + apart, lowermost) if end == 0 else (uppermost, lowermost - apart)
                break


def widen_loops(cut: Layers) -> None:
    """Move the lane of the outermost loop of a box without a right neighbour to where the loop climbs."""
    last = {row[-1] for row in cut.rows if row}
    loops = [chain for chain in cut.chains if chain.loop and len(chain.vertices) > 1]
    outermost: dict[int, float] = {}
    for chain in loops:
        for box, lane in ((chain.vertices[0], chain.upper_lane), (chain.vertices[-1], chain.lower_lane)):
            outermost[box] = max(outermost.get(box, 0.0), lane)
    for chain in loops:
        upper, lower = chain.vertices[0], chain.vertices[-1]
        above = cut.vertices[chain.vertices[1]].x - cut.vertices[upper].x
        below = cut.vertices[chain.vertices[-2]].x - cut.vertices[lower].x
        if upper in last and outermost[upper] == chain.upper_lane < above:
            chain.upper_lane = above
        if lower in last and outermost[lower] == chain.lower_lane < below:
            chain.lower_lane = below


def stack_self_links(links: Sequence[BoxLink]) -> tuple[dict[int, float], dict[int, float]]:
    """Stack the links of boxes to themselves. Return the middle of each, below its box's, and the height by box."""
    heights: dict[int, float] = {}
    tops: dict[int, float] = {}
    for index, link in enumerate(links):
        if link.source == link.target:
            tops[index] = heights.get(link.source, 0.0)
            heights[link.source] = tops[index] + around_px(link.label)
    middles = {
        index: top + around_px(links[index].label) / 2 - heights[links[index].source] / 2 for index, top in tops.items()
    }
    return middles, heights


def sides(cut: Layers, boxes: Sequence[Size], stacks: dict[int, float]) -> dict[int, tuple[float, float]]:
    """Return where each loop leaves and enters its boxes, below their middles.

    Loops leave above the middle and above the ``stacks`` there, and enter below them. The inner loops are nearest to
    the corner, so that loops do not cross.
    """
    loops = [index for index, chain in enumerate(cut.chains) if chain.loop and len(chain.vertices) > 1]
    found: dict[int, list[float]] = {index: [0.0, 0.0] for index in loops}
    for end, sign in ((0, -1), (1, 1)):
        at: dict[int, list[int]] = {}
        for index in loops:
            vertices = cut.chains[index].vertices
            at.setdefault(vertices[-1] if end == 0 else vertices[0], []).append(index)
        for box, ours in at.items():
            ours.sort(key=lambda index: cut.chains[index].lower_lane if end == 0 else cut.chains[index].upper_lane)
            for position, index in enumerate(ours):
                inner = stacks.get(box, 0.0) / 2
                reach = max(4.0, min(boxes[box].height / 2 - 6 - inner, _REACH_MAX_PX))
                found[index][end] = sign * (inner + reach * (len(ours) - position) / (len(ours) + 1))
    return {index: (out, back) for index, (out, back) in found.items()}


ACROSS_PX = 6.0
"""The space that an edge takes between two rows where it enters or leaves a lane."""

LANE_FIRST_PX = 24.0
LANE_NEXT_PX = 12.0
"""The distance of the first lane from the rows, and of each further lane from the previous one."""


class Lane(NamedTuple):
    """The part of an edge beside the rows: a lane, from a height between its upper rows to one between its lower."""

    x: float
    upper: float
    lower: float


def gaps_crossed(cut: Layers) -> Counter[int]:
    """Count the edges that enter or leave a lane below each row."""
    return Counter(rank for chain in _long(cut).values() for rank in chain)


def lanes_beside(cut: Layers, rows: Sequence[tuple[float, float]], width: float) -> tuple[dict[int, Lane], float]:
    """Return the lanes of the long edges, by the index of their chain, and the total width with rows of ``width``."""
    taken: Counter[int] = Counter()
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = 0
    found: dict[int, Lane] = {}
    for index, (upper, lower) in sorted(_long(cut).items(), key=lambda one: one[1]):
        while busy and busy[0][0] < upper:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lane, lanes = lanes, lanes + 1
        heappush(busy, (lower, lane))
        heights: list[float] = []
        for rank in (upper, lower):
            taken[rank] += 1
            heights.append(rows[rank][1] + ACROSS_PX * taken[rank])
        found[index] = Lane(width + LANE_FIRST_PX + lane * LANE_NEXT_PX, *heights)
    return found, width + LANE_FIRST_PX + lanes * LANE_NEXT_PX if lanes else width


def _long(cut: Layers) -> dict[int, tuple[int, int]]:
    """Return the chains that run beside the rows, with the rows below which they enter and leave their lane."""
    return {
        index: (cut.vertices[chain.vertices[1]].rank, cut.vertices[chain.vertices[-2]].rank - 1)
        for index, chain in enumerate(cut.chains)
        if chain.beside
    }
