"""The order of the vertices in each row, with few crossings, found by barycenters and by exchanging neighbours."""

from bisect import bisect_right, insort
from collections.abc import Sequence

from callboard.projections.drawing.graph import Layers, Segment

SWEEPS_MAX = 24
SWEEPS_MIN = 2
SWEPT_VERTICES_MAX = 60_000
"""Limits of the number of sweeps over all rows, which is lower for many vertices. The best order is kept."""

EXCHANGES_VERTICES_MAX = 400
"""The maximum number of vertices for which neighbours are exchanged, because that is slow."""

_LANE = 0.25
"""The assumed position of the lane beside a box, in places right of the box."""


def order(cut: Layers) -> None:
    """Order the rows of a graph in place."""
    above, below = _neighbours(cut)
    best, fewest = [list(row) for row in cut.rows], _crossings(cut)
    for sweep in range(max(SWEEPS_MIN, min(SWEEPS_MAX, SWEPT_VERTICES_MAX // max(1, len(cut.vertices))))):
        if not fewest:
            break
        down = sweep % 2 == 0
        rows = range(1, len(cut.rows)) if down else range(len(cut.rows) - 2, -1, -1)
        for rank in rows:
            _sort(cut, rank, above if down else below, -1 if down else 1)
        if len(cut.vertices) <= EXCHANGES_VERTICES_MAX:
            _exchange(cut, above, below)
        now = _crossings(cut)
        if now < fewest:
            best, fewest = [list(row) for row in cut.rows], now
    cut.rows = best


Near = dict[int, list[tuple[int, float, float]]]
"""The neighbours of each vertex on one side, with the lanes at its own end and at theirs, in places."""


def _neighbours(cut: Layers) -> tuple[Near, Near]:
    above: Near = {}
    below: Near = {}
    for piece in cut.segments:
        upper, lower = _LANE * bool(piece.upper_lane), _LANE * bool(piece.lower_lane)
        above.setdefault(piece.lower, []).append((piece.upper, lower, upper))
        below.setdefault(piece.upper, []).append((piece.lower, upper, lower))
    return above, below


def _sort(cut: Layers, rank: int, near: Near, step: int) -> None:
    """Sort a row by the mean place of each vertex's neighbours. A vertex without neighbours keeps its place."""
    places = {vertex: float(place) for place, vertex in enumerate(cut.rows[rank + step])}
    keys: dict[int, float] = {}
    for place, vertex in enumerate(cut.rows[rank]):
        found = [places[other] + lane - own for other, own, lane in near.get(vertex, ())]
        keys[vertex] = sum(found) / len(found) if found else float(place)
    cut.rows[rank].sort(key=keys.__getitem__)


def _exchange(cut: Layers, above: Near, below: Near) -> None:
    """Exchange neighbours in a row as long as that removes crossings."""
    for rank, row in enumerate(cut.rows):
        sides = [(near, _places(cut, rank + step)) for near, step in ((above, -1), (below, 1))]
        for place in range(len(row) - 1):
            left, right = row[place], row[place + 1]
            now = sum(_between(near.get(left, ()), near.get(right, ()), places) for near, places in sides)
            then = sum(_between(near.get(right, ()), near.get(left, ()), places) for near, places in sides)
            if then < now:
                row[place], row[place + 1] = right, left


def _places(cut: Layers, rank: int) -> dict[int, int]:
    return {vertex: place for place, vertex in enumerate(cut.rows[rank])} if 0 <= rank < len(cut.rows) else {}


def _between(
    left: Sequence[tuple[int, float, float]], right: Sequence[tuple[int, float, float]], places: dict[int, int]
) -> int:
    """Count the crossings between the edges of two neighbours in a row, on one side of the row."""
    return sum(places[a] + lane_a > places[b] + lane_b for a, _own_a, lane_a in left for b, _own_b, lane_b in right)


def _crossings(cut: Layers) -> int:
    """Count the crossings of the whole graph."""
    place = {vertex: float(position) for row in cut.rows for position, vertex in enumerate(row)}
    by_rank: dict[int, list[Segment]] = {}
    for piece in cut.segments:
        by_rank.setdefault(cut.vertices[piece.upper].rank, []).append(piece)
    total = 0
    for pieces in by_rank.values():
        ends = sorted(
            (
                place[piece.upper] + _LANE * bool(piece.upper_lane),
                place[piece.lower] + _LANE * bool(piece.lower_lane),
            )
            for piece in pieces
        )
        seen: list[float] = []
        for _upper, lower in ends:
            total += len(seen) - bisect_right(seen, lower)
            insort(seen, lower)
    return total
