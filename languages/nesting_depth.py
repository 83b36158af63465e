"""The nesting depth of values. Functions that walk a value use Python's stack, so values have a fixed limit of depth
that does not depend on how much of the stack is in use."""

from collections.abc import Iterable

from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

VALUE_DEPTH_MAX = 500
"""How deep a value may nest for a run to continue with it; msgspec reads and writes about twice as many levels."""

ITEMS_PER_STEP = 8
"""How many members or items of a value count as one step."""


def nests_deeper(value: JSON, depth_max: int, steps: Steps) -> bool:
    """Return whether a value nests deeper than a limit. A scalar has the depth 0, an array of scalars 1.

    A part that occurs several times on one level is visited once.

    :raises TooManySteps: if the value takes too many steps
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth_max):
        below: dict[int, JSON] = {}
        for node in level:
            steps.take(1 + len(node) // ITEMS_PER_STEP)
            members: Iterable[JSON] = node.values() if isinstance(node, dict) else node
            below.update([(id(one), one) for one in members if isinstance(one, dict | list)])
        if not below:
            return False
        level = list(below.values())
    return bool(level)
