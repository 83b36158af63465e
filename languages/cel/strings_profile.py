"""The ``strings`` extension, as cel-go documents it (``ext/README.md``). Positions count code points, from zero."""

import re
from collections.abc import Callable
from decimal import Decimal

from callboard.languages.cel.arithmetic import ITEMS_PER_STEP, check_size
from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.conversions import bytes_of_text
from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.members import index, items_of, key_kind, keys_of
from callboard.languages.cel.overloads import Counted, Declarations, count_texts
from callboard.languages.cel.temporal import NS, timestamp_text
from callboard.languages.cel.text_search import count_search, find, find_last
from callboard.languages.cel.values import (
    LISTS,
    MAPS,
    NUMBERS,
    SIZE_MAX,
    CelList,
    Duration,
    Timestamp,
    TypeValue,
    UInt,
    Value,
)

PRECISION_MAX = 100
"""The greatest precision: digits after the point."""

PRECISION = 6
"""The default precision."""

WRITTEN_STEPS = 8
"""Steps for each clause, and for each value that a clause writes."""

BYTES_PER_STEP = 2
"""How many bytes count as one step when they are decoded, because each may be invalid UTF-8."""

Write = Callable[[Value, int, EvaluationBudget], str]
"""Takes a value, a precision (digits after the point) and the budget; returns the text."""

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?(.)?)", re.DOTALL)
_BROKEN = re.compile(rb"\xef\xbf\xbd(?:\xef\xbf\xbd)+")
_INTEGERS = frozenset((int, UInt))


def fill_format(budget: EvaluationBudget, pattern: str, arguments: list[Value]) -> str:
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


def text(value: Value, budget: EvaluationBudget) -> str:
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


def _string(value: Value, precision: int, budget: EvaluationBudget) -> str:
    return text(value, budget)


def _decimal(value: Value, precision: int, budget: EvaluationBudget) -> str:
    if type(value) not in NUMBERS:
        raise _unfit("d", value)
    return plain_number(value)


def _point_writer(letter: str) -> Write:
    def write(value: Value, precision: int, budget: EvaluationBudget) -> str:
        if type(value) not in NUMBERS:
            raise _unfit(letter, value)
        return _not_finite(value) or f"{float(value):.{precision}{letter}}"

    return write


def _base_writer(letter: str) -> Write:
    def write(value: Value, precision: int, budget: EvaluationBudget) -> str:
        if type(value) not in _INTEGERS and not (letter == "b" and type(value) is bool):
            raise _unfit(letter, value)
        return format(int(value), letter)

    return write


def _hexadecimal(letter: str) -> Write:
    whole = _base_writer(letter)

    def write(value: Value, precision: int, budget: EvaluationBudget) -> str:
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


SLOW_CHARS_PER_STEP = 4
"""How many characters count as one step when they are looked up one by one."""

PIECES_PER_STEP = 8
"""How many occurrences of a part count as one step when a text is split or joined at each."""

_WHITE = "".join(map(chr, (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F)))
WHITE_SPACE = _WHITE + "\u205f\u3000"
"""The characters with Unicode's property White_Space."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in _LOWER}
_ESCAPES = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


def _out_of_range(position: int, text: str) -> EvaluationError:
    return EvaluationError(f"position {position} is outside of a text of {len(text)} characters")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position, text)
    return text[position : position + 1]


def _index_of(budget: EvaluationBudget, text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start, text)
    return min(start, len(text)) if not part else find(budget, text, part, start)


def _last_index_until(budget: EvaluationBudget, text: str, part: str, last: int) -> int:
    """Find the last occurrence that begins at ``last`` or before; return -1 if ``last`` is beyond the text."""
    if last < 0:
        raise _out_of_range(last, text)
    if not part:
        return min(last, len(text))
    return -1 if last >= len(text) else find_last(budget, text[: last + len(part)], part)


def _replace(budget: EvaluationBudget, text: str, old: str, new: str, limit: int = -1) -> str:
    limit = limit if 0 <= limit <= SIZE_MAX else -1
    count_search(budget, text, old)
    count = text.count(old)
    count = count if limit < 0 else min(count, limit)
    size = len(text) + count * (len(new) - len(old))
    check_size(size)
    budget.take_text(size)
    budget.take(count // PIECES_PER_STEP)
    return text.replace(old, new, limit)


def _split(budget: EvaluationBudget, text: str, separator: str, limit: int = -1) -> CelList:
    if limit == 0:
        return CelList()
    limit = limit if 0 < limit <= SIZE_MAX else SIZE_MAX
    if separator:
        count_search(budget, text, separator)
        budget.take(min(text.count(separator), limit) // PIECES_PER_STEP)
        return CelList(text.split(separator, limit - 1))
    budget.take_text(len(text))
    budget.take(min(len(text), limit) // PIECES_PER_STEP)
    return CelList(text) if len(text) <= limit else CelList([*text[: limit - 1], text[limit - 1 :]])


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    for position in (start, end):
        if not 0 <= position <= len(text):
            raise _out_of_range(position, text)
    if start > end:
        raise EvaluationError(f"a substring cannot go from {start} back to {end}")
    return text[start:end]


def _join(budget: EvaluationBudget, items: list[Value], separator: str = "") -> str:
    budget.take(len(items) // ITEMS_PER_STEP)
    texts = items_of(items)
    for item in texts:
        if type(item) is not str:
            raise EvaluationError(f"join() joins texts, not {key_kind(item)}")
    size = sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0)
    check_size(size)
    budget.take_text(size)
    return separator.join(texts)


def _translate(table: dict[int, int]) -> Counted:
    def translate(budget: EvaluationBudget, text: str) -> str:
        _count_slowly(budget, text)
        return text.translate(table)

    return Counted(translate)


def _quote(budget: EvaluationBudget, text: str) -> str:
    _count_slowly(budget, text)
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    return f'"{text.translate(_ESCAPES)}"'


def _trim(budget: EvaluationBudget, text: str) -> str:
    _count_slowly(budget, text)
    return text.strip(WHITE_SPACE)


def _count_slowly(budget: EvaluationBudget, text: str) -> None:
    """Count a pass over a text; it takes longer if the text is not ASCII."""
    if text.isascii():
        budget.take_text(len(text))
    else:
        budget.take(1 + len(text) // SLOW_CHARS_PER_STEP)


STRINGS: Declarations = {
    "string.charAt(int)": _char_at,
    "string.indexOf(string)": Counted(_index_of),
    "string.indexOf(string, int)": Counted(_index_of),
    "string.lastIndexOf(string)": Counted(find_last),
    "string.lastIndexOf(string, int)": Counted(_last_index_until),
    "string.lowerAscii()": _translate(_LOWER),
    "string.upperAscii()": _translate(_UPPER),
    "string.replace(string, string)": Counted(_replace),
    "string.replace(string, string, int)": Counted(_replace),
    "string.split(string)": Counted(_split),
    "string.split(string, int)": Counted(_split),
    "string.substring(int)": count_texts(_substring),
    "string.substring(int, int)": count_texts(_substring),
    "string.trim()": Counted(_trim),
    "string.reverse()": count_texts(lambda text: text[::-1]),
    "string.format(list)": Counted(fill_format),
    "list.join()": Counted(_join),
    "list.join(string)": Counted(_join),
    "strings.quote(string)": Counted(_quote),
}
"""All functions of the profile, by signature."""
