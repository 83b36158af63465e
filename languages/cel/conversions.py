"""The functions that convert a value from one kind to another."""

import re
from math import isfinite, trunc

from callboard.languages.cel.arithmetic import checked_int, checked_uint
from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.overloads import Declarations, count_parsing, count_texts
from callboard.languages.cel.temporal import (
    NS,
    checked_timestamp,
    read_duration,
    read_timestamp,
    seconds_text,
    timestamp_text,
)
from callboard.languages.cel.values import INT_MAX, INT_MIN, UInt, Value, type_of

_INT = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_UINT = re.compile(r"[0-9]{1,30}", re.ASCII)
_DOUBLE = re.compile(
    r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?(?:inf|infinity)|nan", re.I | re.A
)
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def _same(value: Value) -> Value:
    return value


def _int_of_double(value: float) -> int:
    """Truncate a double to an int. The ends of the range are excluded, because they are not exact doubles."""
    if not INT_MIN < value < INT_MAX:
        raise EvaluationError(f"{double_text(value)} does not fit an int, which has 64 bits")
    return trunc(value)


def _uint_of_double(value: float) -> UInt:
    if not isfinite(value) or value < 0:
        raise EvaluationError(f"{double_text(value)} does not fit a uint, which has 64 bits and no sign")
    return checked_uint(trunc(value))


def _int_of_text(text: str) -> int:
    if not _INT.fullmatch(text):
        raise EvaluationError(f"{show_value(text)} is no int")
    return checked_int(int(text))


def _uint_of_text(text: str) -> UInt:
    if not _UINT.fullmatch(text):
        raise EvaluationError(f"{show_value(text)} is no uint")
    return checked_uint(int(text))


def _double_of_text(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise EvaluationError(f"{show_value(text)} is no double")
    value = float(text)
    if not isfinite(value) and text[-1:].isdigit():
        raise EvaluationError(f"{show_value(text)} is beyond the doubles")
    return value


def _bool_of_text(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise EvaluationError(f"{show_value(text)} is neither true nor false")
    return text in _TRUE


def _text_of_bytes(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise EvaluationError("the bytes are no UTF-8") from None


def bytes_of_text(text: str) -> bytes:
    """Encode a text as UTF-8.

    :raises EvaluationError: if it holds half of a surrogate pair
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationError("a text holds half of a surrogate pair, which has no bytes") from None


def double_text(value: float) -> str:
    """Write a double with the fewest digits that identify it, with an exponent from a million on and below 0.0001.

    This is the form of cel-go and cel-cpp (C's ``%g``): ``5``, ``0.1``, ``123456.5``, ``1.5e+06``, ``+Inf``, ``NaN``.
    """
    if not isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    shortest = repr(value).removesuffix(".0")
    if "e" in shortest or abs(value) < 1e6:
        return shortest
    digits = len(shortest.strip("-").replace(".", "").rstrip("0"))
    return f"{value:.{digits - 1}e}"


CONVERSIONS: Declarations = {
    "bool(bool)": _same,
    "bool(string)": _bool_of_text,
    "bytes(bytes)": _same,
    "bytes(string)": count_texts(bytes_of_text),
    "double(double)": _same,
    "double(int)": float,
    "double(uint)": float,
    "double(string)": count_texts(_double_of_text),
    "duration(duration)": _same,
    "duration(string)": count_parsing(read_duration),
    "dyn(any)": _same,
    "int(int)": _same,
    "int(uint)": lambda value: checked_int(int(value)),
    "int(double)": _int_of_double,
    "int(string)": _int_of_text,
    "int(timestamp)": lambda value: value.ns // NS,
    "string(string)": _same,
    "string(bool)": lambda value: "true" if value else "false",
    "string(int)": str,
    "string(uint)": lambda value: str(int(value)),
    "string(double)": double_text,
    "string(bytes)": count_texts(_text_of_bytes),
    "string(timestamp)": timestamp_text,
    "string(duration)": seconds_text,
    "timestamp(timestamp)": _same,
    "timestamp(string)": count_parsing(read_timestamp),
    "timestamp(int)": lambda value: checked_timestamp(value * NS),
    "type(any)": type_of,
    "uint(uint)": _same,
    "uint(int)": checked_uint,
    "uint(double)": _uint_of_double,
    "uint(string)": _uint_of_text,
}
"""Every conversion, by signature."""
