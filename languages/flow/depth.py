"""How deep values may nest and how large they may be: bounds of this engine, as the data model has none.

Whatever walks a value does it on Python's stack. That a run ends, and replays to the same end, must not hang on how
much of the stack is left where the value is walked; so values that come near its limit are not made at all. Nor are
those that hold little and would be written out without end, because the same part is in them again and again.
"""

import sys
from typing import Any

from callboard.languages.nesting_depth import nests_deeper
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

DEPTH_MAX = 128
"""How deep the objects and arrays of a value may nest. A failure may add its chain of causes to that."""

TOO_DEEP = f"nests deeper than {DEPTH_MAX} levels"

CHARS_MAX = 32_000_000
"""How large a value may be that a field has: the characters of its texts and names, and one for each item."""

TOO_LARGE = f"has more than {CHARS_MAX} characters"

ITEMS_PER_STEP = 4
"""How many items of a value are one step, where it is measured."""


def too_deep(value: JSON, depth_max: int = DEPTH_MAX) -> bool:
    """Say whether a value nests deeper than a bound; a scalar has the depth 0, an array of scalars 1.

    What is in a value several times is looked into once for each level.
    """
    return nests_deeper(value, depth_max, Steps(sys.maxsize))


def excess(value: JSON, steps: Steps) -> str | None:
    """Return what is too much of a value, `TOO_DEEP` or `TOO_LARGE`; None if it is within the bounds.

    What is in a value several times is measured once for each level, and counts as often as it is there.

    :raises TooManySteps: if it takes too many to measure it
    """
    chars = 0
    level: dict[int, tuple[Any, int]] = {0: (value, 1)} if isinstance(value, dict | list) else {}
    for _ in range(DEPTH_MAX):
        inner: dict[int, tuple[Any, int]] = {}
        for node, times in level.values():
            steps.take(1 + len(node) // ITEMS_PER_STEP)
            chars += times * _measure_level(node, times, inner)
        if chars > CHARS_MAX:
            return TOO_LARGE
        if not inner:
            return None
        level = inner
    return TOO_DEEP


def _measure_level(node: Any, times: int, inner: dict[int, tuple[Any, int]]) -> int:
    """Return the size of an object or array without those inside of it, which are added to the next level."""
    chars = len(node)
    if isinstance(node, dict):
        chars += sum(map(len, node))
        node = node.values()
    for member in node:
        if type(member) is str:
            chars += len(member)
        elif isinstance(member, dict | list):
            inner[id(member)] = member, times + inner.get(id(member), (member, 0))[1]
    return chars
