"""Keys of values: texts that are the same exactly where CEL has two values equal. So lists and maps can be hashed.

They are texts because a text's hash is seeded again in each process. That of a tuple of numbers is not: whole lists of
numbers are easily made that share one, and a set of them is as slow as no set at all.
"""

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.members import BoolKey, items_of
from callboard.languages.cel.values import LISTS, MAPS, NUMBERS, Duration, Timestamp, TypeValue, Value, double_of

NODE_STEPS = 5
"""Steps for each value that a key is made of."""


def key_of(value: Value, budget: Budget) -> str | None:
    """Return a value's key; None if it is equal to nothing, as whatever holds a NaN.

    :raises TooManySteps: if it takes too many
    """
    pieces: list[str] = []
    return "".join(pieces) if _write(value, pieces, budget) else None


def _write(value: Value, pieces: list[str], budget: Budget) -> bool:
    """Write a value's key, each part such that its end can be told; False if there is a NaN in it."""
    budget.take(NODE_STEPS)
    kind = type(value)
    if kind is str:
        budget.take_text(len(value))
        pieces.append(f"s{len(value)}:{value}")
    elif kind in NUMBERS:
        if value != value:
            return False
        pieces.append(_number(value))
    elif kind in LISTS:
        pieces.append("[")
        if not all(_write(item, pieces, budget) for item in items_of(value)):
            return False
        pieces.append("]")
    elif kind in MAPS:
        return _map(value, pieces, budget)
    elif kind is bytes:
        budget.take_text(len(value))
        pieces.append(f"b{len(value)}:{value.decode('latin-1')}")
    else:
        pieces.append(_atom(value))
    return True


def _map(value: dict[Value, Value], pieces: list[str], budget: Budget) -> bool:
    """Write the members in the order of their keys: where they stand in a map makes no difference."""
    data = type(value) is dict
    members: list[str] = []
    for key, member in value.items():
        inside: list[str] = []
        _write(key.value if type(key) is BoolKey else key, inside, budget)
        if not _write(double_of(member) if data and type(member) is int else member, inside, budget):
            return False
        members.append("".join(inside))
    pieces += ["{", *sorted(members), "}"]
    return True


def _number(value: Value) -> str:
    """Write a number; those of all kinds are on one line, and those that are whole are whole numbers of one kind."""
    if type(value) is float and not value.is_integer():
        return f"n{value!r};"
    return f"n{int(value)};"


def _atom(value: Value) -> str:
    if value is None or type(value) is bool:
        return f"c{value};"
    if type(value) is Timestamp or type(value) is Duration:
        return f"{type(value).__name__}{value.ns};"
    assert type(value) is TypeValue
    return f"t{value.name};"
