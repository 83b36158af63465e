"""``string.format`` (cel-spec, ``doc/extensions/strings.md``): ``'%d of %.1f'.format([2, 3.0])``."""

import re
from collections.abc import Callable
from decimal import Decimal

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.conversions import bytes_of_text
from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.members import index, items_of, key_kind, keys_of
from callboard.languages.cel.temporal import NS, timestamp_text
from callboard.languages.cel.values import LISTS, MAPS, NUMBERS, Duration, Timestamp, TypeValue, UInt, Value

PRECISION_MAX = 100
"""The greatest precision: digits after the point."""

PRECISION = 6
"""The default precision."""

WRITTEN_STEPS = 8
"""Steps for each clause, and for each value that a clause writes."""

BYTES_PER_STEP = 2
"""How many bytes count as one step when they are decoded, because each may be invalid UTF-8."""

Write = Callable[[Value, int, Budget], str]
"""Takes a value, a precision (digits after the point) and the budget; returns the text."""

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?(.)?)", re.DOTALL)
_BROKEN = re.compile(rb"\xef\xbf\xbd(?:\xef\xbf\xbd)+")
_INTEGERS = frozenset((int, UInt))


def fill_format(budget: Budget, pattern: str, arguments: list[Value]) -> str:
    """Replace a pattern's clauses with the arguments, in order.

    :raises EvaluationError: if a clause is unknown, or its argument is missing or of a kind that it cannot write
    :raises TooManySteps: if the steps are used up
    """
    budget.take_text(len(pattern))
    budget.take(len(arguments))
    values = iter(items_of(arguments))

    def fill(match: re.Match[str]) -> str:
        budget.take(WRITTEN_STEPS)
        if match[0] == "%%":
            return "%"
        precision, letter = match[1], match[2]
        write = _CLAUSES.get(letter or "")
        if write is None or precision == "":
            raise EvaluationError(
                f"{show_value(match[0])} is no clause of format(); there are %s %d %f %e %x %X %o %b %%"
            )
        if precision is not None and (len(precision) > 4 or int(precision) > PRECISION_MAX):
            raise EvaluationError(f"{show_value(match[0])} asks for more than {PRECISION_MAX} digits")
        try:
            value = next(values)
        except StopIteration:
            raise EvaluationError(f"format() has no argument left for {show_value(match[0])}") from None
        return write(value, PRECISION if precision is None else int(precision), budget)

    return _CLAUSE.sub(fill, pattern)


def _unfit(clause: str, value: Value) -> EvaluationError:
    return EvaluationError(f"format() cannot write {key_kind(value)} as %{clause}")


def _not_finite(value: Value) -> str | None:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return None


def plain_number(value: Value) -> str:
    """Write a number without an exponent and without needless digits: ``5``, ``0.000001``."""
    if type(value) in _INTEGERS:
        return str(int(value))
    return _not_finite(value) or f"{Decimal(repr(value)):f}".removesuffix(".0")


def text(value: Value, budget: Budget) -> str:
    """Write any value, as the clause ``%s`` does.

    :raises TooManySteps: if the steps are used up
    """
    budget.take(WRITTEN_STEPS)
    if type(value) is str:
        budget.take_text(len(value))
        return value
    if type(value) in NUMBERS:
        return plain_number(value)
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is bytes:
        budget.take(len(value) // BYTES_PER_STEP)
        return _BROKEN.sub("\ufffd".encode(), value.decode(errors="replace").encode()).decode()
    if type(value) in LISTS:
        return f"[{', '.join(text(item, budget) for item in items_of(value))}]"
    if type(value) in MAPS:
        entries = sorted((text(key, budget), text(index(value, key), budget)) for key in keys_of(value))
        return f"{{{', '.join(f'{key}: {member}' for key, member in entries)}}}"
    if type(value) is Timestamp:
        return timestamp_text(value)
    if type(value) is Duration:
        return f"{plain_number(value.ns / NS)}s"
    if type(value) is TypeValue:
        return value.name
    raise _unfit("s", value)


def _string(value: Value, precision: int, budget: Budget) -> str:
    return text(value, budget)


def _decimal(value: Value, precision: int, budget: Budget) -> str:
    if type(value) not in NUMBERS:
        raise _unfit("d", value)
    return plain_number(value)


def _point_writer(letter: str) -> Write:
    def write(value: Value, precision: int, budget: Budget) -> str:
        if type(value) not in NUMBERS:
            raise _unfit(letter, value)
        return _not_finite(value) or f"{float(value):.{precision}{letter}}"

    return write


def _base_writer(letter: str) -> Write:
    def write(value: Value, precision: int, budget: Budget) -> str:
        if type(value) not in _INTEGERS and not (letter == "b" and type(value) is bool):
            raise _unfit(letter, value)
        return format(int(value), letter)

    return write


def _hexadecimal(letter: str) -> Write:
    whole = _base_writer(letter)

    def write(value: Value, precision: int, budget: Budget) -> str:
        octets = bytes_of_text(value) if type(value) is str else value
        if type(octets) is not bytes:
            return whole(value, precision, budget)
        budget.take_text(len(octets))
        return octets.hex().upper() if letter == "X" else octets.hex()

    return write


_CLAUSES: dict[str, Write] = {
    "s": _string,
    "d": _decimal,
    "f": _point_writer("f"),
    "e": _point_writer("e"),
    "b": _base_writer("b"),
    "o": _base_writer("o"),
    "x": _hexadecimal("x"),
    "X": _hexadecimal("X"),
}
