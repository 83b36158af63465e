"""An oracle for Callboard's CEL: the CEL team's own C++ engine, asked the same questions; both answer in one form."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from math import isnan
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_math, ext_strings

from callboard.languages.cel.errors import CelSyntaxError, EvaluationError
from callboard.languages.cel.members import index as member_at
from callboard.languages.cel.members import items_of, key_value, keys_of
from callboard.languages.cel.program import compile
from callboard.languages.cel.temporal import to_datetime
from callboard.languages.cel.values import kind
from callboard.lib.json_types import JSON

Answer = tuple[str, Any]
"""The kind of a value and the value, containers holding answers; ``("syntax", None)`` or ``("fault", None)``."""

SYNTAX: Answer = ("syntax", None)
FAULT: Answer = ("fault", None)

ROOTS = ("vars", "step", "x")


class StoppedClock:
    """A clock that always shows the same two instants."""

    def now(self) -> datetime:
        return datetime(2024, 1, 15, 9, 30, tzinfo=UTC)

    def wall_time(self) -> datetime:
        return datetime(2024, 1, 15, 9, 30, 0, 250_000, tzinfo=UTC)


CLOCK = StoppedClock()


@cache
def _environment() -> Any:
    extensions = [ext_strings.ExtStrings(), ext_math.ExtMath(), ext_encoders.ExtEncoders()]
    return cel.NewEnv(variables=dict.fromkeys(ROOTS, cel.Type.DYN), extensions=extensions)


def ask(source: str, bindings: Mapping[str, JSON]) -> Answer:
    """Return the oracle's answer for an expression. Whole numbers are bound as the equal doubles."""
    try:
        program = _environment().compile(source, disable_check=True)
    except Exception:
        return SYNTAX
    try:
        return _told(program.eval(data={name: _doubled(value) for name, value in bindings.items()}))
    except RuntimeError:
        return FAULT


def _doubled(value: JSON) -> JSON:
    match value:
        case bool():
            return value
        case int():
            return float(value)
        case list():
            return [_doubled(item) for item in value]
        case dict():
            return {name: _doubled(member) for name, member in value.items()}
        case _:
            return value


_KINDS = {"NULL_TYPE": "null", "INT": "int", "UINT": "uint", "DOUBLE": "double", "BOOL": "bool", "STRING": "string"}
_OTHERS = {"BYTES": "bytes", "TIMESTAMP": "timestamp", "DURATION": "duration", "TYPE": "type"}


def _told(value: Any) -> Answer:
    name = str(value.type().name()).split("<")[0]
    match name:
        case "ERROR":
            return FAULT
        case "LIST":
            return "list", [_told(item) for item in value.value()]
        case "MAP":
            return "map", {key: _told(member) for key, member in value.value().items()}
        case "BYTES":
            return "bytes", bytes(value.plain_value())
        case "TYPE":
            return "type", None
        case "NULL_TYPE" | "NULL":
            return "null", None
        case "DOUBLE":
            return _double(value.plain_value())
        case _:
            return (_KINDS | _OTHERS)[name], value.plain_value()


def _double(value: float) -> Answer:
    return "double", "NaN" if isnan(value) else repr(value)


def answer(source: str, bindings: Mapping[str, JSON]) -> Answer:
    """Return the answer of Callboard's engine, in the same form."""
    try:
        program = compile(source)
    except CelSyntaxError:
        return SYNTAX
    try:
        return _ours(program.value(bindings, CLOCK))
    except EvaluationError:
        return FAULT


def _ours(value: Any) -> Answer:
    match name := kind(value):
        case "list":
            return name, [_ours(item) for item in items_of(value)]
        case "map":
            return name, {key_value(key): _ours(member_at(value, key)) for key in keys_of(value)}
        case "double":
            return _double(value)
        case "timestamp":
            return name, to_datetime(value)
        case "duration":
            # Python's division, as the oracle cuts off to microseconds in its own way; no test goes below them.
            return name, timedelta(microseconds=value.ns // 1000)
        case "type" | "null":
            return name, None
        case "int" | "uint":
            return name, int(value)
        case _:
            return name, value
