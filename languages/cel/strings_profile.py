"""The ``strings`` extension, as cel-go documents it (``ext/README.md``). Positions count code points, from zero."""

from callboard.languages.cel.arithmetic import check_size
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.formatting import formatted
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.overloads import Declarations
from callboard.languages.cel.values import SIZE_MAX, CelList, Value

_WHITE = "".join(map(chr, (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F)))
WHITE_SPACE = _WHITE + "\u205f\u3000"
"""The characters with Unicode's property White_Space."""

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


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start, text)
    return min(start, len(text)) if not part else text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_until(text: str, part: str, last: int) -> int:
    """Find the last occurrence that begins at ``last`` or before; a ``last`` beyond the text finds nothing."""
    if last < 0:
        raise _out_of_range(last, text)
    if not part:
        return min(last, len(text))
    return -1 if last >= len(text) else text.rfind(part, 0, last + len(part))


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    limit = limit if 0 <= limit <= SIZE_MAX else -1
    count = text.count(old)
    count = count if limit < 0 else min(count, limit)
    check_size(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> CelList:
    if limit == 0:
        return CelList()
    limit = limit if 0 < limit <= SIZE_MAX else SIZE_MAX
    if separator:
        return CelList(text.split(separator, limit - 1))
    return CelList(text) if len(text) <= limit else CelList([*text[: limit - 1], text[limit - 1 :]])


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    for position in (start, end):
        if not 0 <= position <= len(text):
            raise _out_of_range(position, text)
    if start > end:
        raise EvaluationError(f"a substring cannot go from {start} back to {end}")
    return text[start:end]


def _join(items: list[Value], separator: str = "") -> str:
    texts = items_of(items)
    for item in texts:
        if type(item) is not str:
            raise EvaluationError(f"join() joins texts, not {key_kind(item)}")
    check_size(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
    return separator.join(texts)


def _quote(text: str) -> str:
    sound = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return f'"{sound.translate(_ESCAPES)}"'


STRINGS: Declarations = {
    "string.charAt(int)": _char_at,
    "string.indexOf(string)": _index_of,
    "string.indexOf(string, int)": _index_of,
    "string.lastIndexOf(string)": _last_index_of,
    "string.lastIndexOf(string, int)": _last_index_until,
    "string.lowerAscii()": lambda text: text.translate(_LOWER),
    "string.upperAscii()": lambda text: text.translate(_UPPER),
    "string.replace(string, string)": _replace,
    "string.replace(string, string, int)": _replace,
    "string.split(string)": _split,
    "string.split(string, int)": _split,
    "string.substring(int)": _substring,
    "string.substring(int, int)": _substring,
    "string.trim()": lambda text: text.strip(WHITE_SPACE),
    "string.reverse()": lambda text: text[::-1],
    "string.format(list)": formatted,
    "list.join()": _join,
    "list.join(string)": _join,
    "strings.quote(string)": _quote,
}
"""Every function of the profile, by signature."""
