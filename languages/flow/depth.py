"""How deep values may nest: a bound of this engine, since the specification's data model has none.

Whatever walks a value does it on Python's stack. That a run ends, and replays to the same end, must not hang on how
much of the stack is left where the value is walked; so values that come near its limit are not made at all.
"""

from typing import Any

from callboard.bus.effects import JSON

DEPTH_MAX = 128
"""How deep the objects and arrays of a value may nest. A failure may add its chain of causes to that."""

TOO_DEEP = f"nests deeper than {DEPTH_MAX} levels"


def too_deep(value: JSON, depth_max: int = DEPTH_MAX) -> bool:
    """Say whether a value nests deeper than a bound; a scalar has the depth 0, an array of scalars 1.

    What stands in a value several times is looked into once for each level.
    """
    level: dict[int, Any] = {0: value} if isinstance(value, dict | list) else {}
    for _ in range(depth_max):
        level = {
            id(below): below
            for node in level.values()
            for below in (node.values() if isinstance(node, dict) else node)
            if isinstance(below, dict | list)
        }
        if not level:
            return False
    return bool(level)
