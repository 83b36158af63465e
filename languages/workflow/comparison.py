"""Values as the specification compares and writes them: deep equality, and a value as text."""

import msgspec

from callboard.bus.effects import JSON


def same(one: JSON, other: JSON) -> bool:
    """Say whether two JSON values are deeply equal; true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def as_text(value: JSON) -> str:
    """Write a value as text: a string is itself, everything else its JSON, a whole number without a decimal point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
