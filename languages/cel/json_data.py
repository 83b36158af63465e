"""Conversion of CEL values to JSON data, or the reason why a value cannot be data (MWL, expressions, "Result
values")."""

from math import copysign, isfinite

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.errors import Unrepresentable
from callboard.languages.cel.members import key_kind, key_value
from callboard.languages.cel.values import EXACT_MAX, CelList, CelMap, UInt, Value, kind
from callboard.lib.json_types import JSON

ITEM_STEPS = 2
"""Steps for each converted item; a part that occurs several times is converted each time."""

_INSTEAD = {
    "bytes": "base64.encode() makes text of it",
    "timestamp": "string() makes text of it",
    "duration": "string() or durationToIso8601() make text of it",
    "type": "it is only for comparing",
}


def to_data(value: Value, budget: EvaluationBudget) -> JSON:
    """Return a value as JSON data. Data that the expression passes through is not copied.

    A whole double within 2^53 becomes an int, so that it is written 5 and not 5.0; minus zero stays a double.

    :raises Unrepresentable: if the value, or a part of it, cannot be data
    :raises TooManySteps: if the steps are used up
    """
    try:
        return _Conversion(budget).convert(value)
    except _Refused as refused:
        place = "".join(reversed(refused.path)).lstrip(".")
        said = f"{refused.reason} at {place}" if place else refused.reason
        raise Unrepresentable(f"{said}; {refused.hint}" if refused.hint else said) from None


class _Refused(Exception):
    """A value cannot be data. Callers append its path, innermost part first."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.path: list[str] = []


class _Conversion:
    """The conversion of one value."""

    def __init__(self, budget: EvaluationBudget) -> None:
        self._budget = budget

    def convert(self, value: Value) -> JSON:
        kept = type(value)
        if kept is str or kept is bool or value is None or kept is dict or kept is list:
            return value
        if kept is float:
            return _double(value)
        if kept is int or kept is UInt:
            return _whole(value)
        if kept is CelList:
            return self._list(value)
        if kept is CelMap:
            return self._map(value)
        raise _Refused(f"{key_kind(value)} cannot be data", _INSTEAD.get(kind(value), ""))

    def _list(self, items: list[Value]) -> JSON:
        self._budget.take(ITEM_STEPS * len(items))
        made: list[JSON] = []
        try:
            for item in items:
                made.append(self.convert(item))
        except _Refused as refused:
            refused.path.append(f"[{len(made)}]")
            raise
        return made

    def _map(self, members: dict[Value, Value]) -> JSON:
        self._budget.take(ITEM_STEPS * len(members))
        made: dict[str, JSON] = {}
        for key, member in members.items():
            if type(key) is not str:
                told = key_value(key)
                raise _Refused(f"the key {told!r} of a map is {key_kind(told)}", "the keys of data are strings")
            try:
                made[key] = self.convert(member)
            except _Refused as refused:
                refused.path.append(f".{key}")
                raise
        return made


def _whole(number: int) -> int:
    if not -EXACT_MAX <= number <= EXACT_MAX:
        hint = "string() keeps it exactly, double() rounds it"
        raise _Refused(f"the {kind(number)} {number} is beyond 2^53", hint)
    return int(number)


def _double(value: float) -> int | float:
    if not isfinite(value):
        name = "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
        raise _Refused(f"the double {name} cannot be data", "a division by 0.0, perhaps")
    whole = value.is_integer() and -EXACT_MAX <= value <= EXACT_MAX and (value != 0 or copysign(1, value) > 0)
    return int(value) if whole else value
