"""Keys of values: two values have the same key exactly if they are equal in CEL. So lists and maps can be hashed.

Keys are texts because Python seeds the hashes of texts in each process. The hashes of tuples of numbers are not seeded:
it is easy to make many tuples with the same hash, and a set of them is as slow as a list.
"""

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.members import BoolKey, items_of
from callboard.languages.cel.values import LISTS, MAPS, NUMBERS, Duration, Timestamp, TypeValue, Value, double_of

NODE_STEPS = 5
"""Steps for each value in a key."""


def key_of(value: Value, budget: Budget) -> str | None:
    """Return a value's key; None if the value holds a NaN, and so equals nothing.

    :raises TooManySteps: if the steps are used up
    """
    pieces: list[str] = []
    return "".join(pieces) if _write(value, pieces, budget) else None


def _write(value: Value, pieces: list[str], budget: Budget) -> bool:
    """Write a value's key, whose parts are self-delimiting; return False if the value holds a NaN."""
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
    """Write the members in the order of their keys, because their order in a map is not significant."""
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
    """Write a number. Equal numbers of different kinds have the same key."""
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
