"""The strokes of a drawing as SVG: numbers, rectangles, and lines with arrowheads."""

from callboard.projections.drawing.graph import Size
from callboard.projections.drawing.layout import EdgeRoute, Point

_HEAD = Size(5.0, 9.0)
"""Half the width and the length of an arrowhead."""


def rectangle(kind: str, centre: Point, size: Size, radius: int) -> str:
    """Return a rectangle with round corners and the class ``kind``, around its middle."""
    x, y = centre.x - size.width / 2, centre.y - size.height / 2
    room = f'width="{number(size.width)}" height="{number(size.height)}"'
    return f'<rect class="{kind}" x="{number(x)}" y="{number(y)}" {room} rx="{radius}"/>'


def way(route: EdgeRoute) -> tuple[str, str]:
    """Return the arrowhead of an edge and the line up to it."""
    points = [route.start, *(point for step in route.steps for point in step)]
    end = points[-1]
    # Skip points within rounding distance of the end, because they give no direction.
    before = next((one for one in reversed(points) if abs(one.x - end.x) + abs(one.y - end.y) > 1), end)
    x, y = end.x - before.x, end.y - before.y
    length = max((x * x + y * y) ** 0.5, 0.001)
    x, y = x / length, y / length
    base = Point(end.x - x * _HEAD.height, end.y - y * _HEAD.height)
    ways = [f"M{_format_point(route.start)}"]
    for step in route.steps[:-1]:
        ways.append(f"{'L' if len(step) == 1 else 'C'}{' '.join(map(_format_point, step))}")
    last = route.steps[-1]
    # The line stops inside the arrowhead, so that it does not stick out at the tip.
    stop = Point(end.x - x * (_HEAD.height - 2), end.y - y * (_HEAD.height - 2))
    ways.append(f"{'L' if len(last) == 1 else 'C'}{' '.join(map(_format_point, (*last[:-1], stop)))}")
    left = Point(base.x - y * _HEAD.width, base.y + x * _HEAD.width)
    right = Point(base.x + y * _HEAD.width, base.y - x * _HEAD.width)
    return f"M{_format_point(end)} L{_format_point(left)} L{_format_point(right)} Z", " ".join(ways)


def _format_point(point: Point) -> str:
    return f"{number(point.x)} {number(point.y)}"


def number(value: float) -> str:
    """Return a number as text with at most one decimal."""
    return f"{round(value, 1):g}" if abs(value) < 100_000 else str(round(value))
