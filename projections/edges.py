"""Which edge of a definition's outline a route followed."""

from callboard.bus.events import Outline, Route


def edge_index(outline: Outline, route: Route) -> int | None:
    """Return the index of the edge: the one the route names, else the first between the two nodes; None for no edge.

    A route by ``default`` followed the edge without a condition, if there is one.
    """
    ends = (route.source, route.target)
    between = [index for index, edge in enumerate(outline.edges) if (edge.source, edge.target) == ends]
    if isinstance(route.edge, int) and route.edge in between:
        return route.edge
    plain = [index for index in between if not outline.edges[index].when] if route.edge == "default" else []
    return next(iter(plain or between), None)
