"""The arithmetic operators, by the types of their operands: nothing is mixed, nothing wraps around."""

import operator as python
from collections.abc import Callable
from math import copysign, isnan

from callboard.languages.cel.budget import Budget
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
"""How many items of a list are one step, where they are copied."""


def checked_int(number: int) -> int:
    """Return a number that fits an int.

    :raises EvaluationError: if it does not
    """
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError(f"{number} does not fit an int, which has 64 bits")


def checked_uint(number: int) -> UInt:
    """Return a number that fits a uint, as one.

    :raises EvaluationError: if it does not
    """
    if 0 <= number <= UINT_MAX:
        return UInt(number)
    raise EvaluationError(f"{number} does not fit a uint, which has 64 bits and no sign")


def check_size(size: int) -> None:
    """See that a text or bytes about to be made are not too long.

    :raises EvaluationError: if they are
    """
    if size > SIZE_MAX:
        raise EvaluationError(f"the value would have a size of {size}, and {SIZE_MAX} is the most")


def check_count(count: int) -> None:
    """See that a list about to be made is not too long.

    :raises EvaluationError: if it is
    """
    if count > ITEMS_MAX:
        raise EvaluationError(f"the list would have {count} items, and {ITEMS_MAX} are the most")


def _join_lists(left: Value, right: Value, budget: Budget) -> Value:
    size = len(left) + len(right)
    if size > CHARS_PER_STEP:
        check_size(size)
        budget.take_text(size)
    return left + right


def _joined_lists(left: list[Value], right: list[Value], budget: Budget) -> CelList:
    check_count(len(left) + len(right))
    budget.take(1 + (len(left) + len(right)) // ITEMS_PER_STEP)
    joined = CelList(items_of(left))
    joined.extend(items_of(right))
    return joined


def _divide(left: float, right: float) -> float:
    """Divide doubles as IEEE 754 does, by zero too."""
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
    """Return what a division towards zero leaves: it has the sign of the dividend.

    :raises EvaluationError: if the divisor is zero
    """
    if right == 0:
        raise EvaluationError("cannot divide a whole number by zero")
    if right == -1:
        # The division that leaves it overflows, and cel-go and cel-cpp have it that the remainder does so too.
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

_JOINS: dict[tuple[type, type], Callable[[Value, Value, Budget], Value]] = {
    (str, str): _join_lists,
    (bytes, bytes): _join_lists,
    **{(left, right): _joined_lists for left in LISTS for right in LISTS},
}
"""What ``+`` does with what is not a number."""

_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "take the remainder of"}


def operator(symbol: str) -> Callable[[Value, Value, Budget], Value]:
    """Return what an operator does with its two operands."""
    overloads = _OPERATORS[symbol]
    of_doubles = overloads.get((float, float))
    joins = _JOINS if symbol == "+" else {}

    def operate(left: Value, right: Value, budget: Budget) -> Value:
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
