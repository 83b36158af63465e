"""Nesting: how deep a value nests. Whatever walks a value does it on Python's stack, so values have a bound that does
not depend on how much of the stack is left."""

from collections.abc import Iterable

from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

VALUE_DEPTH_MAX = 500
"""How deep a value may nest that a run continues with: msgspec reads and writes about twice as many levels."""

ITEMS_PER_STEP = 8
"""How many members or items of a value are one step, where they are looked at."""


def nests_deeper(value: JSON, depth_max: int, steps: Steps) -> bool:
    """Whether a value nests deeper than a bound; a scalar has the depth 0, an array of scalars 1.

    What is in a value several times is looked into once for each level.

    :raises TooManySteps: if it takes too many
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
