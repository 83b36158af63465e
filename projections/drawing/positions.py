"""The positions of vertices in their rows: their order, and how far from the left each is.

The order has few crossings; it is found by barycenters and by exchanging neighbours. A vertex is as directly below and
above its neighbours as possible. Every row is solved exactly: the positions nearest to the wanted ones, by least
squares, that keep the order and the distances (pool adjacent violators). Sweeps down and up over the rows repeat until
the rows agree. The boxes then keep their positions, and the edges are straightened within the space between their
neighbours.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence

from callboard.projections.drawing.graph import Layers, Segment

ORDER_SWEEPS_MAX = 24
ORDER_SWEEPS_MIN = 2
ORDER_SWEPT_VERTICES_MAX = 60_000
"""Limits of the number of sweeps over all rows, which is lower for many vertices. The best order is kept."""

EXCHANGES_VERTICES_MAX = 400
"""The maximum number of vertices for which neighbours are exchanged, because that is slow."""

_LANE = 0.25
"""The assumed position of the lane beside a box, in places right of the box."""


def order(cut: Layers) -> None:
    """Order the rows of a graph in place."""
    above, below = _neighbours(cut)
    best, fewest = [list(row) for row in cut.rows], _crossings(cut)
    for sweep in range(
        max(ORDER_SWEEPS_MIN, min(ORDER_SWEEPS_MAX, ORDER_SWEPT_VERTICES_MAX // max(1, len(cut.vertices))))
    ):
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


PLACE_SWEEPS_MAX = 40
PLACE_SWEEPS_MIN = 4
PLACE_SWEPT_VERTICES_MAX = 120_000
"""Limits of the number of sweeps over all rows, which is lower for many vertices."""

BETWEEN_PX = 28.0
"""The minimum distance between two boxes in a row."""

BETWEEN_THREADS_PX = 12.0
"""The minimum distance of an edge from the vertices that it passes."""


_WEIGHT = 2.0
_WEIGHT_THREAD = 8.0
_WEIGHT_LOOP = 0.05
"""The weight of a neighbour for a box, of two points of an edge for each other, and of a loop, which gives way."""

STRAIGHTENINGS = 3
"""The number of times that all edges are straightened, because one edge may make space for another."""


Pull = tuple[int, float, float]
"""The pull of a neighbour on a vertex: the neighbour, the wanted offset to the right of its middle, and the weight."""

Pulls = list[Sequence[Pull]]
"""The pulls on each vertex."""


def place(cut: Layers, ports: list[tuple[float, float]]) -> None:
    """Set ``x`` of each vertex. ``ports`` has the offsets of each segment's ends from its upper and lower vertex."""
    above, below = _pulls(cut, ports)
    distances = [_distances(cut, row) for row in cut.rows]
    # By vertex: reading from a list is faster than from the vertices, and these are read often.
    xs = [0.0] * len(cut.vertices)
    for row, between in zip(cut.rows, distances, strict=True):
        for vertex, x in zip(row, between, strict=True):
            xs[vertex] = x - between[-1] / 2
    sweeps = max(PLACE_SWEEPS_MIN, min(PLACE_SWEEPS_MAX, PLACE_SWEPT_VERTICES_MAX // max(1, len(cut.vertices))))
    both: Pulls = [(*up, *down) for up, down in zip(above, below, strict=True)]
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        near = both if sweep >= sweeps // 2 else above if down else below
        for rank in range(len(cut.rows)) if down else range(len(cut.rows) - 1, -1, -1):
            _settle(xs, cut.rows[rank], distances[rank], near)
    # In the end, a vertex that follows a single box is directly below it.
    for row, between in zip(cut.rows, distances, strict=True):
        _settle(xs, row, between, above)
    _straighten(cut, xs, ports, distances)
    leftmost = min((x - vertex.left for x, vertex in zip(xs, cut.vertices, strict=True)), default=0.0)
    for x, vertex in zip(xs, cut.vertices, strict=True):
        vertex.x = round(x - leftmost, 1)


def _pulls(cut: Layers, ports: list[tuple[float, float]]) -> tuple[Pulls, Pulls]:
    """Return the pulls on each vertex from above and from below."""
    above: Pulls = [()] * len(cut.vertices)
    below: Pulls = [()] * len(cut.vertices)
    is_box = [vertex.box is not None for vertex in cut.vertices]
    for piece, (upper, lower) in zip(cut.segments, ports, strict=True):
        points = not is_box[piece.upper] and not is_box[piece.lower]
        weight = _WEIGHT_LOOP if piece.loop else _WEIGHT_THREAD if points else _WEIGHT
        above[piece.lower] = *above[piece.lower], (piece.upper, upper - lower, weight)
        below[piece.upper] = *below[piece.upper], (piece.lower, lower - upper, weight)
    return above, below


def _distances(cut: Layers, row: list[int]) -> list[float]:
    """Return the minimum distance of each vertex of a row from the first one."""
    found: list[float] = []
    for place, vertex in enumerate(row):
        here = cut.vertices[vertex]
        if not place:
            found.append(0.0)
            continue
        before = cut.vertices[row[place - 1]]
        boxes = here.box is not None and before.box is not None
        found.append(found[-1] + before.right + (BETWEEN_PX if boxes else BETWEEN_THREADS_PX) + here.left)
    return found


def _settle(xs: list[float], row: list[int], distances: list[float], near: Pulls) -> None:
    """Place a row: each vertex as near to its wanted position as order and distances allow."""
    # Pools of neighbours that push each other: their common position without the distances, their weight, their number.
    pools: list[tuple[float, float, int]] = []
    for vertex, distance in zip(row, distances, strict=True):
        pulls = near[vertex]
        if len(pulls) == 1:
            other, offset, weight = pulls[0]
            x = xs[other] + offset - distance
        elif pulls:
            total = weight = 0.0
            for other, offset, each in pulls:
                total += (xs[other] + offset) * each
                weight += each
            x = total / weight - distance
        else:
            x, weight = xs[vertex] - distance, 0.1
        count = 1
        while pools and pools[-1][0] > x:
            before, heavy, many = pools.pop()
            x = (before * heavy + x * weight) / (heavy + weight)
            weight += heavy
            count += many
        pools.append((x, weight, count))
    at = 0
    for x, _weight, count in pools:
        for place in range(at, at + count):
            xs[row[place]] = x + distances[place]
        at += count


def _straighten(cut: Layers, xs: list[float], ports: list[tuple[float, float]], distances: list[list[float]]) -> None:
    """Pull each edge into as few vertical pieces as the space between its neighbours allows."""
    # The left and the right neighbour of each vertex, and the minimum distance to it.
    left: list[tuple[int, float] | None] = [None] * len(xs)
    right: list[tuple[int, float] | None] = [None] * len(xs)
    for row, between in zip(cut.rows, distances, strict=True):
        for place in range(1, len(row)):
            apart = between[place] - between[place - 1]
            left[row[place]] = row[place - 1], apart
            right[row[place - 1]] = row[place], apart

    def room(vertex: int) -> tuple[float, float]:
        low, high = left[vertex], right[vertex]
        return (
            xs[low[0]] + low[1] if low is not None else float("-inf"),
            xs[high[0]] - high[1] if high is not None else float("inf"),
        )

    for _ in range(STRAIGHTENINGS):
        segment = 0
        for chain in cut.chains:
            points = chain.vertices[1:-1]
            if points:
                first_x = xs[chain.vertices[0]] + ports[segment][0]
                last_x = xs[chain.vertices[-1]] + ports[segment + chain.pieces - 1][1]
                rooms = [room(point) for point in points]
                if chain.beside:
                    _pull(xs, points[:1], rooms[:1], first_x, first_x)
                    _pull(xs, points[1:], rooms[1:], last_x, last_x)
                else:
                    _pull(xs, points, rooms, first_x, last_x)
            segment += chain.pieces


def _pull(xs: list[float], points: list[int], rooms: list[tuple[float, float]], first_x: float, last_x: float) -> None:
    """Put the points of an edge in straight runs. The first run is at the edge's start, the last one at its end."""
    begin = 0
    while begin < len(points):
        low, high = rooms[begin]
        end = begin + 1
        while end < len(points) and max(low, rooms[end][0]) <= min(high, rooms[end][1]):
            low, high = max(low, rooms[end][0]), min(high, rooms[end][1])
            end += 1
        if begin == 0:
            # A single run needs at most one bend if it is directly below or above one of the ends.
            wanted = last_x if end == len(points) and not low <= first_x <= high else first_x
        elif end == len(points):
            wanted = last_x
        else:
            wanted = xs[points[begin - 1]]
        for point in points[begin:end]:
            xs[point] = min(max(wanted, low), high)
        begin = end
