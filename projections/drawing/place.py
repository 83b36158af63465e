"""Where in its row each vertex stands: as straight below and above its neighbours as the room allows.

Every row is solved exactly: the places nearest to those wanted, in least squares, that keep the order and the distances
(pool adjacent violators). Rows are gone through down and up until they agree. Boxes then stand; the edges between them
are pulled straight, within the room that each has between its neighbours.
"""

from typing import NamedTuple

from callboard.projections.drawing.graph import Layers

SWEEPS_MAX = 40
SWEEPS_MIN = 4
SWEPT_VERTICES_MAX = 120_000
"""How often all rows are gone through, less often if there are many vertices."""

BETWEEN_PX = 28.0
"""The least distance between two boxes in a row."""

BETWEEN_THREADS_PX = 12.0
"""The least distance of an edge from what it passes."""


_WEIGHT = 2.0
_WEIGHT_THREAD = 8.0
_WEIGHT_LOOP = 0.05
"""How much a box heeds a neighbour, a point of an edge another one, and anything a loop: that is to give way."""

STRAIGHTENINGS = 3
"""How often all edges are pulled straight: one may make room for another."""


class Pull(NamedTuple):
    """What a neighbour asks of a vertex: to stand ``offset`` right of it."""

    other: int
    offset: float
    weight: float


def place(cut: Layers, ports: list[tuple[float, float]]) -> None:
    """Give each vertex its ``x``; ``ports`` has, per segment, where it ends right of its upper and lower vertex."""
    above: dict[int, list[Pull]] = {}
    below: dict[int, list[Pull]] = {}
    for piece, (upper, lower) in zip(cut.segments, ports, strict=True):
        points = cut.vertices[piece.upper].box is None and cut.vertices[piece.lower].box is None
        weight = _WEIGHT_LOOP if piece.loop else _WEIGHT_THREAD if points else _WEIGHT
        above.setdefault(piece.lower, []).append(Pull(piece.upper, upper - lower, weight))
        below.setdefault(piece.upper, []).append(Pull(piece.lower, lower - upper, weight))
    distances = [_distances(cut, row) for row in cut.rows]
    for row, between in zip(cut.rows, distances, strict=True):
        for vertex, x in zip(row, between, strict=True):
            cut.vertices[vertex].x = x - between[-1] / 2
    sweeps = max(SWEEPS_MIN, min(SWEEPS_MAX, SWEPT_VERTICES_MAX // max(1, len(cut.vertices))))
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        both = sweep >= sweeps // 2
        for rank in range(len(cut.rows)) if down else range(len(cut.rows) - 1, -1, -1):
            near = [above, below] if both else [above] if down else [below]
            _settle(cut, cut.rows[rank], distances[rank], near)
    # What follows a single box stands right below it in the end.
    for row, between in zip(cut.rows, distances, strict=True):
        _settle(cut, row, between, [above])
    _straighten(cut, ports, distances)
    leftmost = min((vertex.x - vertex.left for vertex in cut.vertices), default=0.0)
    for vertex in cut.vertices:
        vertex.x = round(vertex.x - leftmost, 1)


def _distances(cut: Layers, row: list[int]) -> list[float]:
    """Return how far each vertex of a row is from the first one at least."""
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


def _settle(cut: Layers, row: list[int], distances: list[float], near: list[dict[int, list[Pull]]]) -> None:
    wanted: list[tuple[float, float]] = []
    for vertex in row:
        pulls = [pull for side in near for pull in side.get(vertex, ())]
        weight = sum(pull.weight for pull in pulls)
        if weight:
            middle = sum((cut.vertices[pull.other].x + pull.offset) * pull.weight for pull in pulls) / weight
            wanted.append((middle, weight))
        else:
            wanted.append((cut.vertices[vertex].x, 0.1))
    for vertex, x in zip(row, _solved(wanted, distances), strict=True):
        cut.vertices[vertex].x = x


def _solved(wanted: list[tuple[float, float]], distances: list[float]) -> list[float]:
    """Return the places nearest to the wanted ones that keep the distances."""
    pools: list[tuple[float, float, int]] = []
    for (x, weight), distance in zip(wanted, distances, strict=True):
        pool = (x - distance, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            both = before[1] + pool[1]
            pool = ((before[0] * before[1] + pool[0] * pool[1]) / both, both, before[2] + pool[2])
        pools.append(pool)
    flat = [x for x, _weight, count in pools for _ in range(count)]
    return [x + distance for x, distance in zip(flat, distances, strict=True)]


def _straighten(cut: Layers, ports: list[tuple[float, float]], distances: list[list[float]]) -> None:
    """Pull each edge into as few vertical pieces as the room between its neighbours allows."""
    at = {vertex: (rank, place) for rank, row in enumerate(cut.rows) for place, vertex in enumerate(row)}

    def room(vertex: int) -> tuple[float, float]:
        rank, place = at[vertex]
        row, between = cut.rows[rank], distances[rank]
        low = cut.vertices[row[place - 1]].x + between[place] - between[place - 1] if place else float("-inf")
        if place + 1 == len(row):
            return low, float("inf")
        return low, cut.vertices[row[place + 1]].x - between[place + 1] + between[place]

    for _ in range(STRAIGHTENINGS):
        segment = 0
        for chain in cut.chains:
            points = chain.vertices[1:-1]
            if points:
                last = segment + len(points)
                first_x = cut.vertices[chain.vertices[0]].x + ports[segment][0]
                last_x = cut.vertices[chain.vertices[-1]].x + ports[last][1]
                _pull(cut, points, [room(point) for point in points], first_x, last_x)
            segment += len(chain.vertices) - 1


def _pull(cut: Layers, points: list[int], rooms: list[tuple[float, float]], first_x: float, last_x: float) -> None:
    """Put the points of an edge in straight runs; the first run stands at its beginning, the last at its end."""
    begin = 0
    while begin < len(points):
        low, high = rooms[begin]
        end = begin + 1
        while end < len(points) and max(low, rooms[end][0]) <= min(high, rooms[end][1]):
            low, high = max(low, rooms[end][0]), min(high, rooms[end][1])
            end += 1
        if begin == 0:
            # One run from end to end needs one bend at most, if it stands where either end is.
            wanted = last_x if end == len(points) and not low <= first_x <= high else first_x
        elif end == len(points):
            wanted = last_x
        else:
            wanted = cut.vertices[points[begin - 1]].x
        for point in points[begin:end]:
            cut.vertices[point].x = min(max(wanted, low), high)
        begin = end
