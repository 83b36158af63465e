"""The ``math`` extension, as cel-go documents it (``ext/README.md``)."""

import math
from collections.abc import Callable, Sequence

from callboard.languages.cel.arithmetic import checked_int
from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.overloads import Counted, Declarations
from callboard.languages.cel.values import NUMBERS, UINT_MAX, UInt, Value

_BITS = 64


def _extreme(name: str, better: Callable[[Value, Value], bool]) -> Counted:
    """Return the function that finds the best number of a list, the first of equal ones."""

    def find(budget: Budget, numbers: list[Value]) -> Value:
        budget.take(len(numbers))
        candidates: Sequence[Value] = items_of(numbers)
        if not candidates:
            raise EvaluationError(f"math.{name}() of an empty list")
        best = candidates[0]
        for candidate in candidates:
            if type(candidate) not in NUMBERS:
                raise EvaluationError(f"math.{name}() compares numbers, not {key_kind(candidate)}")
            if better(candidate, best):
                best = candidate
        return best

    return Counted(find)


def _same(number: Value) -> Value:
    return number


def _whole_or_not_finite(function: Callable[[float], int]) -> Callable[[float], float]:
    """Round doubles to whole ones of the same sign; infinities and NaN are returned unchanged."""
    return lambda value: math.copysign(float(function(value)), value) if math.isfinite(value) else value


def _round(value: float) -> int:
    """Round half away from zero."""
    whole = math.trunc(value)
    return whole + (1 if value > 0 else -1) if abs(value - whole) >= 0.5 else whole


def _sign(value: Value) -> Value:
    if value != value:
        return value
    return type(value)((value > 0) - (value < 0))


def _square_root(value: Value) -> float:
    return math.sqrt(value) if value >= 0 else float("nan")


def _to_signed(bits: int) -> int:
    """Read 64 bits as an int."""
    return bits - 2**_BITS if bits >> (_BITS - 1) else bits


def _shift(value: Value, count: int, *, left: bool) -> int:
    """Shift 64 bits, filling with zeros."""
    if count < 0:
        raise EvaluationError(f"cannot shift bits by {count}")
    bits = int(value) & UINT_MAX
    return 0 if count >= _BITS else (bits << count if left else bits >> count) & UINT_MAX


MATH: Declarations = {
    **{f"math.greatest({kind})": _same for kind in ("int", "uint", "double")},
    **{f"math.least({kind})": _same for kind in ("int", "uint", "double")},
    "math.greatest(list)": _extreme("greatest", lambda new, best: new > best),
    "math.least(list)": _extreme("least", lambda new, best: new < best),
    "math.ceil(double)": _whole_or_not_finite(math.ceil),
    "math.floor(double)": _whole_or_not_finite(math.floor),
    "math.round(double)": _whole_or_not_finite(_round),
    "math.trunc(double)": _whole_or_not_finite(math.trunc),
    "math.abs(double)": abs,
    "math.abs(int)": lambda value: checked_int(abs(value)),
    "math.abs(uint)": _same,
    **{f"math.sign({kind})": _sign for kind in ("int", "uint", "double")},
    "math.isInf(double)": math.isinf,
    "math.isNaN(double)": math.isnan,
    "math.isFinite(double)": math.isfinite,
    **{f"math.sqrt({kind})": _square_root for kind in ("int", "uint", "double")},
    "math.bitAnd(int, int)": lambda a, b: a & b,
    "math.bitAnd(uint, uint)": lambda a, b: UInt(int(a) & int(b)),
    "math.bitOr(int, int)": lambda a, b: a | b,
    "math.bitOr(uint, uint)": lambda a, b: UInt(int(a) | int(b)),
    "math.bitXor(int, int)": lambda a, b: a ^ b,
    "math.bitXor(uint, uint)": lambda a, b: UInt(int(a) ^ int(b)),
    "math.bitNot(int)": lambda value: ~value,
    "math.bitNot(uint)": lambda value: UInt(~int(value) & UINT_MAX),
    "math.bitShiftLeft(int, int)": lambda value, count: _to_signed(_shift(value, count, left=True)),
    "math.bitShiftLeft(uint, int)": lambda value, count: UInt(_shift(value, count, left=True)),
    "math.bitShiftRight(int, int)": lambda value, count: _to_signed(_shift(value, count, left=False)),
    "math.bitShiftRight(uint, int)": lambda value, count: UInt(_shift(value, count, left=False)),
}
"""All functions of the profile, by signature. Several arguments of greatest and least are passed as a list."""
