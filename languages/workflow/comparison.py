"""Values as the specification compares and writes them: deep equality, and a value as text."""

from itertools import repeat

import msgspec

from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps


def same(one: JSON, other: JSON, steps: Steps) -> bool:
    """Say whether two JSON values are deeply equal; true is not 1, but 1 is 1.0.

    :raises TooManySteps: if it takes too many
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
    """Write a value as text: a string is itself, everything else its JSON, a whole number without a decimal point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
