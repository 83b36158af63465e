"""Equality and order of CEL values: numbers of all kinds compare with each other, other values only within their
kind.

Lists and maps are hashed by keys: two values have the same key exactly if they are equal in CEL. Keys are texts because
Python seeds the hashes of texts in each process. The hashes of tuples of numbers are not seeded: it is easy to make
many tuples with the same hash, and a set of them is as slow as a list.
"""

from collections.abc import Callable, Iterable
from itertools import repeat

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import BoolKey, contains_key, items_of, key_kind
from callboard.languages.cel.values import LISTS, MAPS, NUMBERS, Duration, Timestamp, TypeValue, UInt, Value, double_of
from callboard.lib.step_limits import CHARS_PER_STEP

SCANNED_MAX = 16
"""How many items `in` compares one by one; a longer list is hashed, once per evaluation."""

CONTAINER_STEPS = 4
"""Steps for comparing two containers, in addition to those for their items."""

_TEXTS = frozenset((str, bytes))
_ORDERED = frozenset((str, bytes, bool, Timestamp, Duration))

_HASHED = frozenset((str, bytes, int, UInt, float))
"""Kinds with Python's equality, except for NaN: Python's containers find the same NaN object equal to itself."""


def equal(left: Value, right: Value, budget: EvaluationBudget) -> bool:
    """Return whether two values are equal. Values of two kinds are not, unless both are numbers.

    :raises TooManySteps: if the steps are used up
    """
    left_type, right_type = type(left), type(right)
    if left_type in _TEXTS:
        if len(left) > CHARS_PER_STEP:
            budget.take_text(len(left))
        return left_type is right_type and left == right
    if left_type in NUMBERS:
        return right_type in NUMBERS and left == right
    if left_type in LISTS:
        return right_type in LISTS and _equal_lists(left, right, budget)
    if left_type in MAPS:
        return right_type in MAPS and _equal_maps(left, right, budget)
    return left_type is right_type and left == right


def _equal_lists(left: list[Value], right: list[Value], budget: EvaluationBudget) -> bool:
    budget.take(CONTAINER_STEPS)
    if len(left) != len(right):
        return False
    budget.take(2 * len(left))
    return all(map(equal, items_of(left), items_of(right), repeat(budget)))


def _equal_maps(left: dict[Value, Value], right: dict[Value, Value], budget: EvaluationBudget) -> bool:
    budget.take(CONTAINER_STEPS)
    if len(left) != len(right):
        return False
    for key, value in left.items():
        budget.take(2 if type(key) is not str else 2 + len(key) // CHARS_PER_STEP)
        if key not in right:
            return False
        other = right[key]
        if type(value) is int and type(left) is dict:
            value = double_of(value)
        if type(other) is int and type(right) is dict:
            other = double_of(other)
        if not equal(value, other, budget):
            return False
    return True


class Members:
    """A growing set of values with the equality of `equal`. Texts and numbers are hashed directly, others by their
    keys."""

    def __init__(self, budget: EvaluationBudget, values: Iterable[Value] = ()) -> None:
        self._budget = budget
        self._hashed: set[Value] = set()
        self._keys: set[str] = set()
        for value in values:
            self.add(value)

    def add(self, value: Value) -> bool:
        """Add a value; return whether it is new.

        :raises TooManySteps: if the steps are used up
        """
        where, key = self._place(value)
        if key is None or key in where:
            return key is None
        where.add(key)
        return True

    def __contains__(self, value: Value) -> bool:
        where, key = self._place(value)
        return key is not None and key in where

    def _place(self, value: Value) -> tuple[set[Value], Value]:
        """Return the set for a value and the value's key in it; the key is None if the value equals nothing."""
        if type(value) not in _HASHED:
            return self._keys, key_of(value, self._budget)
        if type(value) in _TEXTS:
            self._budget.take_text(len(value))
        else:
            self._budget.take(1)
        return self._hashed, value if value == value else None


def members_of(container: list[Value], budget: EvaluationBudget) -> Members:
    """Return the items of a list as a set, which is built once per evaluation.

    :raises TooManySteps: if the steps are used up
    """
    found = budget.indexes.get(id(container))
    if found is None:
        # The list is kept with it, so that no other list can get the same id.
        found = budget.indexes[id(container)] = container, Members(budget, items_of(container))
    return found[1]


def contains(container: Value, value: Value, budget: EvaluationBudget) -> bool:
    """Return ``value in container``.

    :raises EvaluationError: if the container is neither a list nor a map, or the value cannot be a map's key
    :raises TooManySteps: if the steps are used up
    """
    if type(container) in LISTS:
        if len(container) > SCANNED_MAX:
            return value in members_of(container, budget)
        budget.take(len(container))
        return any(equal(item, value, budget) for item in items_of(container))
    if type(container) in MAPS:
        if type(value) is str:
            budget.take_text(len(value))
        return contains_key(container, value)
    raise EvaluationError(f"'in' looks into a list or the keys of a map, not into {key_kind(container)}")


def are_comparable(left: Value, right: Value) -> bool:
    """Return whether two values can be ordered."""
    left_type, right_type = type(left), type(right)
    if left_type in NUMBERS:
        return right_type in NUMBERS
    return left_type is right_type and left_type in _ORDERED


Compare = Callable[[Value, Value, EvaluationBudget], bool]


def _check_types(operator: str, compare: Callable[[Value, Value], bool]) -> Compare:
    def check_and_compare(left: Value, right: Value, budget: EvaluationBudget) -> bool:
        if are_comparable(left, right):
            if type(left) in _TEXTS:
                budget.take_text(min(len(left), len(right)))
            return compare(left, right)
        raise EvaluationError(f"cannot compare {key_kind(left)} {operator} {key_kind(right)}")

    return check_and_compare


def _less(left: Value, right: Value) -> bool:
    return left < right


def _not_above(left: Value, right: Value) -> bool:
    return left < right or left == right


RELATIONS: dict[str, Compare] = {
    "==": equal,
    "!=": lambda left, right, budget: not equal(left, right, budget),
    "<": _check_types("<", _less),
    "<=": _check_types("<=", _not_above),
    ">": _check_types(">", lambda left, right: _less(right, left)),
    ">=": _check_types(">=", lambda left, right: _not_above(right, left)),
    "in": lambda value, container, budget: contains(container, value, budget),
}
"""The function of each relation, which takes both operands and the budget."""


NODE_STEPS = 5
"""Steps for each value in a key."""


def key_of(value: Value, budget: EvaluationBudget) -> str | None:
    """Return a value's key; None if the value holds a NaN, and so equals nothing.

    :raises TooManySteps: if the steps are used up
    """
    pieces: list[str] = []
    return "".join(pieces) if _write_key(value, pieces, budget) else None


def _write_key(value: Value, pieces: list[str], budget: EvaluationBudget) -> bool:
    """Write a value's key, whose parts are self-delimiting; return False if the value holds a NaN."""
    budget.take(NODE_STEPS)
    kind = type(value)
    if kind is str:
        budget.take_text(len(value))
        pieces.append(f"s{len(value)}:{value}")
    elif kind in NUMBERS:
        if value != value:
            return False
        pieces.append(_number_key(value))
    elif kind in LISTS:
        pieces.append("[")
        if not all(_write_key(item, pieces, budget) for item in items_of(value)):
            return False
        pieces.append("]")
    elif kind in MAPS:
        return _write_map_key(value, pieces, budget)
    elif kind is bytes:
        budget.take_text(len(value))
        pieces.append(f"b{len(value)}:{value.decode('latin-1')}")
    else:
        pieces.append(_atom_key(value))
    return True


def _write_map_key(value: dict[Value, Value], pieces: list[str], budget: EvaluationBudget) -> bool:
    """Write the members in the order of their keys, because their order in a map is not significant."""
    data = type(value) is dict
    members: list[str] = []
    for key, member in value.items():
        inside: list[str] = []
        _write_key(key.value if type(key) is BoolKey else key, inside, budget)
        if not _write_key(double_of(member) if data and type(member) is int else member, inside, budget):
            return False
        members.append("".join(inside))
    pieces += ["{", *sorted(members), "}"]
    return True


def _number_key(value: Value) -> str:
    """Write a number. Equal numbers of different kinds have the same key."""
    if type(value) is float and not value.is_integer():
        return f"n{value!r};"
    return f"n{int(value)};"


def _atom_key(value: Value) -> str:
    if value is None or type(value) is bool:
        return f"c{value};"
    if type(value) is Timestamp or type(value) is Duration:
        return f"{type(value).__name__}{value.ns};"
    assert type(value) is TypeValue
    return f"t{value.name};"
