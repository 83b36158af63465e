"""Where in its row each vertex stands: as straight below and above its neighbours as the room allows.

Every row is solved exactly: the places nearest to those wanted, in least squares, that keep the order and the distances
(pool adjacent violators). Rows are gone through down and up until they agree. Boxes then stand; the edges between them
are pulled straight, within the room that each has between its neighbours.
"""

from collections.abc import Sequence

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


Pull = tuple[int, float, float]
"""What a neighbour asks of a vertex: whose middle it is, how far right of that to stand, and how much that weighs."""

Pulls = list[Sequence[Pull]]
"""Those of each vertex."""


def place(cut: Layers, ports: list[tuple[float, float]]) -> None:
    """Give each vertex its ``x``; ``ports`` has, per segment, where it ends right of its upper and lower vertex."""
    above, below = _pulls(cut, ports)
    distances = [_distances(cut, row) for row in cut.rows]
    # By vertex: what is looked at so often is read from a list.
    xs = [0.0] * len(cut.vertices)
    for row, between in zip(cut.rows, distances, strict=True):
        for vertex, x in zip(row, between, strict=True):
            xs[vertex] = x - between[-1] / 2
    sweeps = max(SWEEPS_MIN, min(SWEEPS_MAX, SWEPT_VERTICES_MAX // max(1, len(cut.vertices))))
    both: Pulls = [(*up, *down) for up, down in zip(above, below, strict=True)]
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        near = both if sweep >= sweeps // 2 else above if down else below
        for rank in range(len(cut.rows)) if down else range(len(cut.rows) - 1, -1, -1):
            _settle(xs, cut.rows[rank], distances[rank], near)
    # What follows a single box stands right below it in the end.
    for row, between in zip(cut.rows, distances, strict=True):
        _settle(xs, row, between, above)
    _straighten(cut, xs, ports, distances)
    leftmost = min((x - vertex.left for x, vertex in zip(xs, cut.vertices, strict=True)), default=0.0)
    for x, vertex in zip(xs, cut.vertices, strict=True):
        vertex.x = round(x - leftmost, 1)


def _pulls(cut: Layers, ports: list[tuple[float, float]]) -> tuple[Pulls, Pulls]:
    """Return what those above and those below ask of each vertex."""
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


def _settle(xs: list[float], row: list[int], distances: list[float], near: Pulls) -> None:
    """Place a row: each vertex as near to where it is pulled as order and distances allow."""
    # Pools of neighbours that push each other: their common place less the distances, their weight, how many they are.
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
    """Pull each edge into as few vertical pieces as the room between its neighbours allows."""
    # Who stands left and right of each vertex, and how far from it at least.
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
            wanted = xs[points[begin - 1]]
        for point in points[begin:end]:
            xs[point] = min(max(wanted, low), high)
        begin = end
