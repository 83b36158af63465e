"""The comparison of values and their form as text, both as specified."""

from itertools import repeat

import msgspec

from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps


def same(one: JSON, other: JSON, steps: Steps) -> bool:
    """Return whether two JSON values are deeply equal; true differs from 1, and 1 equals 1.0.

    :raises TooManySteps: if it takes more steps than ``steps`` has left
    """
    steps.take(1)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        return all(map(same, one.values(), map(other.__getitem__, one), repeat(steps)))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other, repeat(steps)))
    return one == other


def as_text(value: JSON) -> str:
    """Return a value as text: a string itself, everything else as JSON, a whole number without a decimal point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
