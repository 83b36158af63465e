"""Equality as JSON Schema defines it: 1 equals 1.0, and true is not a number. For many values there are keys."""

from typing import Any

from callboard.lib.json_types import JSON
from callboard.lib.step_limits import CHARS_PER_STEP, Steps

NODE_STEPS = 4
"""Steps for each value inside a key."""

SCANNED_MAX = 16
"""Up to this number of values are compared one by one; more are looked up by their keys."""


def equal(one: JSON, other: JSON, steps: Steps) -> bool:
    """Return whether two values are equal.

    :raises TooManySteps: if it takes too many steps
    """
    steps.take(1)
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case str(), str():
            steps.take(min(len(one), len(other)) // CHARS_PER_STEP)
            return one == other
        case list(), list():
            return len(one) == len(other) and all(equal(a, b, steps) for a, b in zip(one, other, strict=True))
        case dict(), dict():
            steps.take(len(one))
            return one.keys() == other.keys() and all(equal(one[name], other[name], steps) for name in one)
        case _:
            return bool(one == other)


def key_of(value: JSON, steps: Steps) -> str:
    """Return a text that is the same for equal values, and different for others.

    It is a text and not a tuple, because hashes of texts are randomized in each process. Hashes of numbers are
    predictable, so an attacker could choose values that collide.

    :raises TooManySteps: if it takes too many steps
    """
    pieces: list[str] = []
    _write(value, pieces, steps)
    return "".join(pieces)


def _write(value: Any, pieces: list[str], steps: Steps) -> None:
    steps.take(NODE_STEPS)
    if isinstance(value, str):
        steps.take(len(value) // CHARS_PER_STEP)
        pieces.append(f"s{len(value)}:{value}")
    elif isinstance(value, bool) or value is None:
        pieces.append(f"c{value};")
    elif isinstance(value, list):
        pieces.append("[")
        for item in value:
            _write(item, pieces, steps)
        pieces.append("]")
    elif isinstance(value, dict):
        pieces.append("{")
        steps.take(len(value))
        for name in sorted(value):
            _write(name, pieces, steps)
            _write(value[name], pieces, steps)
        pieces.append("}")
    else:
        whole = isinstance(value, float) and value.is_integer()
        pieces.append(f"n{int(value) if whole else value!r};")


def among(value: JSON, values: list[JSON], steps: Steps) -> bool:
    """Return whether a value is among a few others.

    :raises TooManySteps: if it takes too many steps
    """
    return any(equal(each, value, steps) for each in values)


def unique(values: list[JSON], steps: Steps) -> bool:
    """Return whether all values are different.

    :raises TooManySteps: if it takes too many steps
    """
    seen: set[str] = set()
    for value in values:
        key = key_of(value, steps)
        if key in seen:
            return False
        seen.add(key)
    return True
