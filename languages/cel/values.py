"""CEL values: their Python types and the names of their kinds.

| CEL | Python |
| --- | --- |
| null, bool, string, bytes | None, bool, str, bytes |
| int, uint, double | int, `UInt`, float |
| list, map | `CelList`, `CelMap`, or plain ``list`` and ``dict``: data |
| timestamp, duration, type | `Timestamp`, `Duration`, `TypeValue` |

Data keeps its JSON form, and every number in it is a double: an ``int`` in a plain list or dict counts as a float. So
data need not be converted before an expression runs, but all code that reads members of containers must use `members`.
Kinds are checked with ``type(x) is``, never with ``isinstance``, because True is not 1 and a uint is not an int.
"""

from types import NoneType
from typing import Any

Value = Any
"""A CEL value of a type in the table above."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
UINT_MAX = 2**64 - 1
EXACT_MAX = 2**53
"""Up to this magnitude a double can hold every whole number."""

SIZE_MAX = 10_000_000
"""How many characters or bytes a text that an expression makes may have."""

ITEMS_MAX = 1_000_000
"""How many items a list that an expression makes may have."""


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class CelList(list[Value]):
    """A list made by an expression; an int in it is an int."""

    __slots__ = ()


class CelMap(dict[Value, Value]):
    """A map made by an expression; an int in it is an int. `members.stored_key` makes its keys."""

    __slots__ = ()


class Timestamp:
    """An instant: nanoseconds since 1970 in UTC, between the years 1 and 9999."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return type(other) is Timestamp and self.ns == other.ns

    def __lt__(self, other: "Timestamp") -> bool:
        return self.ns < other.ns

    def __hash__(self) -> int:
        return hash((Timestamp, self.ns))


class Duration:
    """A length of time in nanoseconds, of either sign, within 64 bits."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return type(other) is Duration and self.ns == other.ns

    def __lt__(self, other: "Duration") -> bool:
        return self.ns < other.ns

    def __hash__(self) -> int:
        return hash((Duration, self.ns))


class TypeValue:
    """A type as a value, such as ``int``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return type(other) is TypeValue and self.name == other.name

    def __hash__(self) -> int:
        return hash((TypeValue, self.name))


KINDS: dict[str, tuple[type, ...]] = {
    "null": (NoneType,),
    "bool": (bool,),
    "int": (int,),
    "uint": (UInt,),
    "double": (float,),
    "string": (str,),
    "bytes": (bytes,),
    "list": (list, CelList),
    "map": (dict, CelMap),
    "timestamp": (Timestamp,),
    "duration": (Duration,),
    "type": (TypeValue,),
}
"""The Python types of each kind, by its short name."""

KIND_NAMES: dict[type, str] = {python: kind for kind, pythons in KINDS.items() for python in pythons}

NUMBERS = frozenset((int, UInt, float))
LISTS = frozenset((list, CelList))
MAPS = frozenset((dict, CelMap))

_LONG_NAMES = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}

TYPE_VALUES: dict[str, TypeValue] = {
    _LONG_NAMES.get(kind, kind): TypeValue(_LONG_NAMES.get(kind, kind)) for kind in KINDS
}
"""The types that an expression can name."""


def kind(value: Value) -> str:
    """Return the short name of a value's kind: ``int``, ``timestamp``."""
    return KIND_NAMES.get(type(value), type(value).__name__)


def type_of(value: Value) -> TypeValue:
    """Return a value's type, as the CEL function ``type`` does."""
    return TYPE_VALUES[_LONG_NAMES.get(kind(value), kind(value))]


def double_of(number: int) -> float:
    """Return the double nearest to a whole number of data; infinity if it is beyond the finite doubles."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
