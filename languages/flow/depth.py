"""Limits of the depth and the size of values. They are limits of this engine; the data model has none.

Functions that walk a value use Python's stack. A run and its replay must end alike however much of the stack is in use,
so values that nest too deep are not made. Neither are values in which the same part occurs so often that their text
would be huge.
"""

import sys
from typing import Any

from callboard.languages.nesting_depth import nests_deeper
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

DEPTH_MAX = 128
"""How deep the objects and arrays of a value may nest. A failure may exceed this by its chain of causes."""

TOO_DEEP = f"nests deeper than {DEPTH_MAX} levels"

CHARS_MAX = 32_000_000
"""How large the value of a field may be: the characters of its texts and names, and one for each item."""

TOO_LARGE = f"has more than {CHARS_MAX} characters"

ITEMS_PER_STEP = 4
"""How many items of a measured value count as one step."""


def too_deep(value: JSON, depth_max: int = DEPTH_MAX) -> bool:
    """Return whether a value nests deeper than a limit. A scalar has the depth 0, an array of scalars 1.

    A part that occurs several times on one level is visited once.
    """
    return nests_deeper(value, depth_max, Steps(sys.maxsize))


def find_excess(value: JSON, steps: Steps) -> str | None:
    """Return which limit a value exceeds, `TOO_DEEP` or `TOO_LARGE`; None if it exceeds neither.

    A part that occurs several times on one level is measured once, and its size counts each time.

    :raises TooManySteps: if the steps are used up
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
    """Return the size of an object or array, without its inner ones, which are added to the next level."""
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
