"""Lanes beside the rows, for edges that are too long to run through all the rows between their boxes."""

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from callboard.projections.drawing.graph import Layers

ACROSS_PX = 6.0
"""The space that an edge takes between two rows where it enters or leaves a lane."""

LANE_FIRST_PX = 24.0
LANE_NEXT_PX = 12.0
"""The distance of the first lane from the rows, and of each further lane from the previous one."""


class Beside(NamedTuple):
    """The part of an edge beside the rows: a lane, from a height between its upper rows to one between its lower."""

    lane: float
    upper: float
    lower: float


def gaps_crossed(cut: Layers) -> Counter[int]:
    """Count the edges that enter or leave a lane below each row."""
    return Counter(rank for chain in _long(cut).values() for rank in chain)


def ways_beside(cut: Layers, rows: Sequence[tuple[float, float]], width: float) -> tuple[dict[int, Beside], float]:
    """Return the lanes of the long edges, by the index of their chain, and the total width with rows of ``width``."""
    taken: Counter[int] = Counter()
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = 0
    found: dict[int, Beside] = {}
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
        found[index] = Beside(width + LANE_FIRST_PX + lane * LANE_NEXT_PX, *heights)
    return found, width + LANE_FIRST_PX + lanes * LANE_NEXT_PX if lanes else width


def _long(cut: Layers) -> dict[int, tuple[int, int]]:
    """Return the chains that run beside the rows, with the rows below which they enter and leave their lane."""
    return {
        index: (cut.vertices[chain.vertices[1]].rank, cut.vertices[chain.vertices[-2]].rank - 1)
        for index, chain in enumerate(cut.chains)
        if chain.beside
    }
