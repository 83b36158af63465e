"""``toJson`` and ``fromJson``: conversion of a value to its canonical JSON text (RFC 8785), and back."""

import json
from collections.abc import Iterable
from json.encoder import encode_basestring
from math import isfinite

from callboard.languages.cel.arithmetic import check_size
from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import EvaluationError, Unrepresentable
from callboard.languages.cel.json_data import to_data
from callboard.languages.cel.values import EXACT_MAX, Value, double_of
from callboard.lib.json_types import JSON

DATA_DEPTH_MAX = 100
"""How deep the arrays and objects of a parsed text may nest."""

WRITTEN_STEPS = 6
"""Steps for each written value."""

READ_CHARS_PER_STEP = 2
"""How many characters of a parsed text count as one step: every other character may be a value."""


def to_json(budget: Budget, value: Value) -> str:
    """Serialize a value by RFC 8785.

    :raises EvaluationError: if the value cannot be data
    :raises TooManySteps: if the steps are used up
    """
    try:
        data = to_data(value, budget)
    except Unrepresentable as refused:
        raise EvaluationError(f"toJson(): {refused.message}") from None
    pieces: list[str] = []
    _write(data, pieces, budget)
    check_size(sum(map(len, pieces)))
    return "".join(pieces)


def _write(data: JSON, pieces: list[str], budget: Budget) -> None:
    budget.take(WRITTEN_STEPS)
    if data is None or type(data) is bool:
        pieces.append("null" if data is None else "true" if data else "false")
    elif type(data) is str:
        budget.take_text(len(data))
        pieces.append(_text(data))
    elif type(data) is list:
        before = "["
        for item in data:
            pieces.append(before)
            _write(item, pieces, budget)
            before = ","
        pieces.append("]" if data else "[]")
    elif type(data) is dict:
        before = "{"
        for name in sorted(data, key=_utf16):
            budget.take_text(len(name))
            pieces.append(f"{before}{_text(name)}:")
            _write(data[name], pieces, budget)
            before = ","
        pieces.append("}" if data else "{}")
    else:
        pieces.append(number_text(data))


def _utf16(name: str) -> bytes:
    """Return the sort key of a member's name: its UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise EvaluationError("toJson(): a text holds half of a surrogate pair")
    return encode_basestring(text)


def number_text(number: int | float) -> str:
    """Write a number as ECMAScript does: the shortest digits, an exponent from 1e21 on and below 1e-6."""
    if type(number) is int and abs(number) <= EXACT_MAX:
        return str(number)
    value = double_of(number) if type(number) is int else number
    if not isfinite(value):
        raise EvaluationError("toJson(): a number is not finite")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or "0") - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Place the decimal point after ``point`` digits; beyond 21 or below -5 write an exponent."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def from_json(budget: Budget, text: str) -> Value:
    """Parse a JSON text.

    :raises EvaluationError: if it is not JSON, or a number or string in it cannot be data
    :raises TooManySteps: if the steps are used up
    """
    budget.take(1 + len(text) // READ_CHARS_PER_STEP)
    try:
        data = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"fromJson(): the text is no JSON: {error}") from None
    if "\\u" in text:
        _check_texts(data)
    if text.count("[") + text.count("{") > DATA_DEPTH_MAX:
        _check_depth(data)
    return double_of(data) if type(data) is int else data


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON value")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError("a number is beyond the doubles")
    return value


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= 15 else _finite(digits)


def _check_depth(data: JSON) -> None:
    level = [data]
    for _ in range(DATA_DEPTH_MAX):
        level = [child for node in level if type(node) in (list, dict) for child in _below(node)]
    if any(type(node) in (list, dict) for node in level):
        raise EvaluationError(f"fromJson(): the text is nested more than {DATA_DEPTH_MAX} deep")


def _below(node: JSON) -> Iterable[JSON]:
    return node.values() if type(node) is dict else node


def _check_texts(data: JSON) -> None:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise EvaluationError("fromJson(): a string holds half of a surrogate pair") from None
