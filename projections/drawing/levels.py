"""The nesting of an outline whose ids are paths: which node contains which, and the boxes around related nodes."""

from collections.abc import Iterator, Sequence

from callboard.projections.trace.node_tree import above

DEPTH_MAX = 8
"""The maximum depth. Deeper levels are drawn on this one."""

ROOT = None
"""The level above all nodes; a node's id may be empty."""


def parents(ids: Sequence[str]) -> dict[str, str | None]:
    """Return the container of each node, `ROOT` if it has none. The keys include boxes that are not nodes."""
    known = set(ids)
    boxes = known | _find_boxes(ids)
    found: dict[str, str | None] = {}
    depths: dict[str | None, int] = {ROOT: 0}
    # Outer ones first, so that the depth of a container is known before its contents are placed.
    for key in sorted(boxes, key=len):
        inside = (one for one in above(key) if one in boxes and depths[one] < DEPTH_MAX)
        found[key] = next(inside, ROOT)
        depths[key] = depths[found[key]] + 1
    place = {key: index for index, key in enumerate(ids)}
    for index, key in enumerate(ids):
        for box in _chain(found, key):
            place.setdefault(box, index)
    return {key: found[key] for key in sorted(found, key=lambda key: place.get(key, 0))}


def _find_boxes(ids: Sequence[str]) -> set[str]:
    """Return the boxes that are not nodes: around several nodes, but not around all nodes."""
    known = set(ids)
    inside: dict[str, int] = {}
    for key in ids:
        if (box := key.rpartition("/")[0]) and box not in known:
            inside[box] = inside.get(box, 0) + 1
    around = {box: next((one for one in above(box) if one in known), ROOT) for box in inside}
    found: set[str] = set()
    for box, count in inside.items():
        node = around[box]
        of_a_node = node is not None and "/" not in box[len(node) :]
        alone = of_a_node and list(around.values()).count(around[box]) == 1
        everything = all(key.startswith(f"{box}/") for key in ids)
        if count > 1 and not alone and not everything:
            found.add(box)
    return found


def _chain(found: dict[str, str | None], key: str) -> Iterator[str]:
    parent = found[key]
    while parent is not None:
        yield parent
        parent = found[parent]
