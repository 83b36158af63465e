"""Equality and order of CEL values: numbers of all kinds on one line, everything else within its kind."""

from collections.abc import Callable, Iterable

from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import contains_key, items_of, key_kind
from callboard.languages.cel.values import LISTS, MAPS, NUMBERS, Duration, Timestamp, UInt, Value, double_of

_ORDERED = frozenset((str, bytes, bool, Timestamp, Duration))
_ATOMS = frozenset((str, bytes, bool))

_HASHED = frozenset((str, bytes, int, UInt, float))
"""Kinds whose equality is Python's, among themselves: a NaN is not equal to itself, but is the same object."""


def equal(left: Value, right: Value) -> bool:
    """Say whether two values are equal. Values of two kinds are not, unless both are numbers."""
    left_type, right_type = type(left), type(right)
    if left_type is right_type and left_type in _ATOMS:
        return left == right
    if left_type in NUMBERS:
        return right_type in NUMBERS and left == right
    if left_type in LISTS:
        return right_type in LISTS and _equal_lists(left, right)
    if left_type in MAPS:
        return right_type in MAPS and _equal_maps(left, right)
    return left_type is right_type and left == right


def _equal_lists(left: list[Value], right: list[Value]) -> bool:
    return len(left) == len(right) and all(map(equal, items_of(left), items_of(right)))


def _equal_maps(left: dict[Value, Value], right: dict[Value, Value]) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.items():
        if key not in right:
            return False
        other = right[key]
        if type(value) is int and type(left) is dict:
            value = double_of(value)
        if type(other) is int and type(right) is dict:
            other = double_of(other)
        if not equal(value, other):
            return False
    return True


class Members:
    """A growing set of values, as equal as `equal` has it. Texts and numbers are looked up, others compared in turn."""

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self._hashed: set[Value] = set()
        self._others: list[Value] = []
        for value in values:
            self.add(value)

    def add(self, value: Value) -> None:
        """Put a value in."""
        if type(value) in _HASHED:
            self._hashed.add(value)
        else:
            self._others.append(value)

    def __contains__(self, value: Value) -> bool:
        if type(value) in _HASHED:
            return value == value and value in self._hashed
        return any(equal(value, other) for other in self._others)


def contains(container: Value, value: Value) -> bool:
    """Return ``value in container``.

    :raises EvaluationError: if the container is neither a list nor a map, or the value no key of a map
    """
    if type(container) in LISTS:
        if type(value) is str:
            return value in container
        return any(equal(item, value) for item in items_of(container))
    if type(container) in MAPS:
        return contains_key(container, value)
    raise EvaluationError(f"'in' looks into a list or the keys of a map, not into {key_kind(container)}")


def comparable(left: Value, right: Value) -> bool:
    """Say whether two values have an order."""
    left_type, right_type = type(left), type(right)
    if left_type in NUMBERS:
        return right_type in NUMBERS
    return left_type is right_type and left_type in _ORDERED


def _checked(operator: str, compare: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    def compared(left: Value, right: Value) -> bool:
        if comparable(left, right):
            return compare(left, right)
        raise EvaluationError(f"cannot compare {key_kind(left)} {operator} {key_kind(right)}")

    return compared


def _less(left: Value, right: Value) -> bool:
    return left < right


def _not_above(left: Value, right: Value) -> bool:
    return left < right or left == right


RELATIONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _checked("<", _less),
    "<=": _checked("<=", _not_above),
    ">": _checked(">", lambda left, right: _less(right, left)),
    ">=": _checked(">=", lambda left, right: _not_above(right, left)),
    "in": lambda value, container: contains(container, value),
}
"""What each relation does with its two operands."""
