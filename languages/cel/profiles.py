"""The extensions ``encoders``, ``lists``, ``math`` and ``sets``, as cel-go documents them (``ext/README.md``).

Base64 is that of the standard alphabet. ``sortBy`` of lists is a macro. Sets are lists without order or repetition.
"""

import binascii
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence

from callboard.languages.cel.arithmetic import ITEMS_PER_STEP, check_count, check_size, checked_int
from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.comparison import Members, are_comparable, members_of
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.overloads import Counted, Declarations, count_texts
from callboard.languages.cel.values import LISTS, NUMBERS, UINT_MAX, CelList, Duration, Timestamp, UInt, Value
from callboard.lib.step_limits import CHARS_PER_STEP

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)


def _decode_base64(text: str) -> bytes:
    """Decode base64. Line breaks are skipped, and the padding may be omitted."""
    packed = text.replace("\r", "").replace("\n", "")
    try:
        if not _BASE64.fullmatch(packed):
            raise binascii.Error("a character outside of the alphabet")
        return b64decode(packed if "=" in packed else packed + "=" * (-len(packed) % 4), validate=True)
    except binascii.Error:
        raise EvaluationError("the text is no base64") from None


def _encode_base64(octets: bytes) -> str:
    check_size(len(octets) * 4 // 3)
    return b64encode(octets).decode()


ENCODERS: Declarations = {
    "base64.decode(string)": count_texts(_decode_base64),
    "base64.encode(bytes)": count_texts(_encode_base64),
}
"""All functions of the profile, by signature."""


COMPARISONS_PER_STEP = 4
"""How many comparisons of sort keys (numbers or short texts) count as one step."""

LIST_STEPS = 3
"""Steps for each flattened list, in addition to those for its items."""


def sorted_by(budget: EvaluationBudget, items: list[Value], keys: list[Value]) -> CelList:
    """Sort items by their keys, which must be of one ordered kind. Items with equal keys keep their order.

    :raises EvaluationError: if the keys are of several kinds, or of one without an order
    :raises TooManySteps: if the steps are used up
    """
    budget.take(1 + len(keys))
    longest = 0
    for key in keys:
        if not are_comparable(key, key):
            raise EvaluationError(f"cannot sort by {key_kind(key)}")
        if type(key) is not type(keys[0]):
            raise EvaluationError(f"cannot sort {key_kind(keys[0])} together with {key_kind(key)}")
        if type(key) in _TEXTS:
            longest = max(longest, len(key))
    comparisons = len(keys) * len(keys).bit_length()
    budget.take(comparisons * (1 + longest // CHARS_PER_STEP) // COMPARISONS_PER_STEP)
    if keys and type(keys[0]) in _INSTANTS:
        keys = [key.ns for key in keys]
    return CelList(items[place] for place in sorted(range(len(items)), key=keys.__getitem__))


_TEXTS = frozenset((str, bytes))
_INSTANTS = frozenset((Timestamp, Duration))


def _sort(budget: EvaluationBudget, items: list[Value]) -> CelList:
    values = items_of(items)
    return sorted_by(budget, values, values)


def _slice(budget: EvaluationBudget, items: list[Value], start: int, end: int) -> CelList:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"there is no slice from {start} to {end} of a list of {len(items)}")
    budget.take((end - start) // ITEMS_PER_STEP)
    part = items[start:end]
    return CelList(part if type(items) is CelList else items_of(part))


def _flatten(budget: EvaluationBudget, items: list[Value], depth: int = 1) -> CelList:
    if depth < 0:
        raise EvaluationError(f"cannot flatten {depth} levels")
    flat = CelList()
    _flatten_into(flat, items, depth, budget)
    return flat


def _flatten_into(flat: CelList, items: list[Value], depth: int, budget: EvaluationBudget) -> None:
    budget.take(LIST_STEPS + len(items))
    for item in items_of(items):
        if depth > 0 and type(item) in LISTS:
            _flatten_into(flat, item, depth - 1, budget)
        else:
            flat.append(item)


def _range(budget: EvaluationBudget, count: int) -> CelList:
    check_count(count)
    budget.take(count // ITEMS_PER_STEP)
    return CelList(range(count))


def _reverse(budget: EvaluationBudget, items: list[Value]) -> CelList:
    budget.take(len(items) // ITEMS_PER_STEP)
    return CelList(reversed(items_of(items)))


def _distinct(budget: EvaluationBudget, items: list[Value]) -> CelList:
    """Keep the first of equal items."""
    seen = Members(budget)
    return CelList(item for item in items_of(items) if seen.add(item))


LISTS_PROFILE: Declarations = {
    "list.slice(int, int)": Counted(_slice),
    "list.flatten()": Counted(_flatten),
    "list.flatten(int)": Counted(_flatten),
    "list.sort()": Counted(_sort),
    "list.reverse()": Counted(_reverse),
    "list.distinct()": Counted(_distinct),
    "lists.range(int)": Counted(_range),
}
"""All functions of the profile, by signature."""


_BITS = 64


def _extreme(name: str, better: Callable[[Value, Value], bool]) -> Counted:
    """Return the function that finds the best number of a list, the first of equal ones."""

    def find(budget: EvaluationBudget, numbers: list[Value]) -> Value:
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


def _contains_all(budget: EvaluationBudget, whole: list[Value], part: list[Value]) -> bool:
    known = members_of(whole, budget)
    return all(item in known for item in items_of(part))


def _equivalent(budget: EvaluationBudget, left: list[Value], right: list[Value]) -> bool:
    return _contains_all(budget, left, right) and _contains_all(budget, right, left)


def _intersects(budget: EvaluationBudget, left: list[Value], right: list[Value]) -> bool:
    known = members_of(right, budget)
    return any(item in known for item in items_of(left))


SETS: Declarations = {
    "sets.contains(list, list)": Counted(_contains_all),
    "sets.equivalent(list, list)": Counted(_equivalent),
    "sets.intersects(list, list)": Counted(_intersects),
}
"""All functions of the profile, by signature."""
