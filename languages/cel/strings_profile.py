"""The ``strings`` extension, as cel-go documents it (``ext/README.md``). Positions count code points, from zero."""

import re

from callboard.languages.cel.arithmetic import ITEMS_PER_STEP, check_size
from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.overloads import Counted, Declarations, count_texts
from callboard.languages.cel.string_format import fill_format
from callboard.languages.cel.text_search import count_search, find, find_last
from callboard.languages.cel.values import SIZE_MAX, CelList, Value

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


def _index_of(budget: Budget, text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start, text)
    return min(start, len(text)) if not part else find(budget, text, part, start)


def _last_index_until(budget: Budget, text: str, part: str, last: int) -> int:
    """Find the last occurrence that begins at ``last`` or before; return -1 if ``last`` is beyond the text."""
    if last < 0:
        raise _out_of_range(last, text)
    if not part:
        return min(last, len(text))
    return -1 if last >= len(text) else find_last(budget, text[: last + len(part)], part)


def _replace(budget: Budget, text: str, old: str, new: str, limit: int = -1) -> str:
    limit = limit if 0 <= limit <= SIZE_MAX else -1
    count_search(budget, text, old)
    count = text.count(old)
    count = count if limit < 0 else min(count, limit)
    size = len(text) + count * (len(new) - len(old))
    check_size(size)
    budget.take_text(size)
    budget.take(count // PIECES_PER_STEP)
    return text.replace(old, new, limit)


def _split(budget: Budget, text: str, separator: str, limit: int = -1) -> CelList:
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


def _join(budget: Budget, items: list[Value], separator: str = "") -> str:
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
    def translate(budget: Budget, text: str) -> str:
        _count_slowly(budget, text)
        return text.translate(table)

    return Counted(translate)


def _quote(budget: Budget, text: str) -> str:
    _count_slowly(budget, text)
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    return f'"{text.translate(_ESCAPES)}"'


def _trim(budget: Budget, text: str) -> str:
    _count_slowly(budget, text)
    return text.strip(WHITE_SPACE)


def _count_slowly(budget: Budget, text: str) -> None:
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
