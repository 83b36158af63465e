"""The arithmetic operators, by the types of their operands. Types are not mixed, and overflow is an error."""

import operator as python
from collections.abc import Callable
from math import copysign, isnan

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.temporal import checked_duration, checked_timestamp
from callboard.languages.cel.values import (
    INT_MAX,
    INT_MIN,
    ITEMS_MAX,
    LISTS,
    NUMBERS,
    SIZE_MAX,
    UINT_MAX,
    CelList,
    Duration,
    Timestamp,
    UInt,
    Value,
)
from callboard.lib.step_limits import CHARS_PER_STEP

Binary = Callable[[Value, Value], Value]

ITEMS_PER_STEP = 4
"""How many copied items of a list count as one step."""


def checked_int(number: int) -> int:
    """Return a number unchanged.

    :raises EvaluationError: if it does not fit an int
    """
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError(f"{number} does not fit an int, which has 64 bits")


def checked_uint(number: int) -> UInt:
    """Return a number as a uint.

    :raises EvaluationError: if it does not fit
    """
    if 0 <= number <= UINT_MAX:
        return UInt(number)
    raise EvaluationError(f"{number} does not fit a uint, which has 64 bits and no sign")


def check_size(size: int) -> None:
    """Check the size of a text or bytes before they are made.

    :raises EvaluationError: if they would be longer than `SIZE_MAX`
    """
    if size > SIZE_MAX:
        raise EvaluationError(f"the value would have a size of {size}, and {SIZE_MAX} is the most")


def check_count(count: int) -> None:
    """Check the length of a list before it is made.

    :raises EvaluationError: if it would have more than `ITEMS_MAX` items
    """
    if count > ITEMS_MAX:
        raise EvaluationError(f"the list would have {count} items, and {ITEMS_MAX} are the most")


def _join_lists(left: Value, right: Value, budget: EvaluationBudget) -> Value:
    size = len(left) + len(right)
    if size > CHARS_PER_STEP:
        check_size(size)
        budget.take_text(size)
    return left + right


def _joined_lists(left: list[Value], right: list[Value], budget: EvaluationBudget) -> CelList:
    check_count(len(left) + len(right))
    budget.take(1 + (len(left) + len(right)) // ITEMS_PER_STEP)
    joined = CelList(items_of(left))
    joined.extend(items_of(right))
    return joined


def _divide(left: float, right: float) -> float:
    """Divide doubles as IEEE 754 does, also by zero."""
    try:
        return left / right
    except ZeroDivisionError:
        if left == 0 or isnan(left):
            return float("nan")
        return copysign(float("inf"), left) * copysign(1.0, right)


def quotient(left: int, right: int) -> int:
    """Divide whole numbers, towards zero.

    :raises EvaluationError: if the divisor is zero
    """
    if right == 0:
        raise EvaluationError("cannot divide a whole number by zero")
    result = abs(left) // abs(right)
    return result if (left < 0) == (right < 0) else -result


def remainder(left: int, right: int) -> int:
    """Return the remainder of a division towards zero; it has the sign of the dividend.

    :raises EvaluationError: if the divisor is zero
    """
    if right == 0:
        raise EvaluationError("cannot divide a whole number by zero")
    if right == -1:
        # This division overflows, and in cel-go and cel-cpp the remainder overflows with it.
        checked_int(-left)
    result = abs(left) % abs(right)
    return -result if left < 0 else result


_OPERATORS: dict[str, dict[tuple[type, type], Binary]] = {
    "+": {
        (float, float): python.add,
        (int, int): lambda a, b: checked_int(a + b),
        (UInt, UInt): lambda a, b: checked_uint(int(a) + int(b)),
        (Timestamp, Duration): lambda a, b: checked_timestamp(a.ns + b.ns),
        (Duration, Timestamp): lambda a, b: checked_timestamp(a.ns + b.ns),
        (Duration, Duration): lambda a, b: checked_duration(a.ns + b.ns),
    },
    "-": {
        (float, float): python.sub,
        (int, int): lambda a, b: checked_int(a - b),
        (UInt, UInt): lambda a, b: checked_uint(int(a) - int(b)),
        (Timestamp, Timestamp): lambda a, b: checked_duration(a.ns - b.ns),
        (Timestamp, Duration): lambda a, b: checked_timestamp(a.ns - b.ns),
        (Duration, Duration): lambda a, b: checked_duration(a.ns - b.ns),
    },
    "*": {
        (float, float): python.mul,
        (int, int): lambda a, b: checked_int(a * b),
        (UInt, UInt): lambda a, b: checked_uint(int(a) * int(b)),
    },
    "/": {
        (float, float): _divide,
        (int, int): lambda a, b: checked_int(quotient(a, b)),
        (UInt, UInt): lambda a, b: checked_uint(quotient(a, b)),
    },
    "%": {
        (int, int): remainder,
        (UInt, UInt): lambda a, b: UInt(remainder(a, b)),
    },
}

_JOINS: dict[tuple[type, type], Callable[[Value, Value, EvaluationBudget], Value]] = {
    (str, str): _join_lists,
    (bytes, bytes): _join_lists,
    **{(left, right): _joined_lists for left in LISTS for right in LISTS},
}
"""The implementations of ``+`` for operands that are not numbers."""

_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "take the remainder of"}


def operator(symbol: str) -> Callable[[Value, Value, EvaluationBudget], Value]:
    """Return the function of an operator, which takes both operands and the budget."""
    overloads = _OPERATORS[symbol]
    of_doubles = overloads.get((float, float))
    joins = _JOINS if symbol == "+" else {}

    def operate(left: Value, right: Value, budget: EvaluationBudget) -> Value:
        if type(left) is float and type(right) is float and of_doubles:
            return of_doubles(left, right)
        types = type(left), type(right)
        if types in overloads:
            return overloads[types](left, right)
        if types in joins:
            return joins[types](left, right, budget)
        raise _mismatch(symbol, left, right)

    return operate


def _mismatch(symbol: str, left: Value, right: Value) -> EvaluationError:
    hint = ""
    if type(left) in NUMBERS and type(right) in NUMBERS and type(left) is not type(right):
        hint = "; numbers of two kinds do not mix: write 1.0 for 1, or convert one with double(), int() or uint()"
    elif str in (type(left), type(right)) and symbol == "+":
        hint = "; string() makes text of a number"
    return EvaluationError(f"cannot {_VERBS[symbol]} {key_kind(left)} and {key_kind(right)}{hint}")


def negate(value: Value) -> Value:
    """Return ``-value``.

    :raises EvaluationError: if it is not an int or double, or the smallest int
    """
    if type(value) is float:
        return -value
    if type(value) is int:
        return checked_int(-value)
    raise EvaluationError(f"cannot negate {key_kind(value)}")
