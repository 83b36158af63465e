"""Answers as JSON: reads the value that a model meant from the text that it wrote. Pure.

Models put prose around JSON, fence it, write their reasoning before it, and end lists with a comma. The reader takes
the whole text, else the last code fence that holds JSON, else the last balanced object or array; each strictly, then as
JSON with the liberties of JSON5. Its time is linear in the length of the text.

These are accepted beyond JSON: trailing commas, comments, names without quotes, single quotes, line breaks within
strings, a sign or a dot at the edge of a number, and Python's ``True``, ``False`` and ``None``. ``NaN`` and
``Infinity`` are refused.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_text

CANDIDATES_MAX = 16
"""Maximum number of fences, objects or arrays that are tried, from the last, and of openings in prose skipped."""

_THOUGHTS = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```+")
_LANGUAGES = frozenset({"", "json", "json5", "jsonc", "jsonl", "javascript", "js"})
_SIGNS = re.compile(r'["\\{}\[\]]')
_OPENING = {"{": "}", "[": "]"}
_LIKE_JSON = re.compile(r'[{\[]\s*["{\[\]}\d-]')

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**64 - 1


def read_json(text: str, *, array: bool = False) -> JSON:
    """Read an answer. ``array``: an array is expected, so one is taken before an object.

    :raises ValueError: if no part of it can be read as JSON
    """
    text = normalise_text(text.removeprefix("\ufeff"))
    answer = _THOUGHTS.sub("", text)
    for candidate in chain((text, answer), _fenced_texts(answer), _balanced_texts(answer, "[" if array else "{")):
        for read in (_read, read_relaxed):
            try:
                return plain(read(candidate))
            except (ValueError, RecursionError):
                continue
    raise ValueError("no JSON in the answer")


def read_whole(text: str) -> JSON:
    """Read a text that is JSON as a whole, with the liberties of JSON5.

    :raises ValueError: if it is not
    """
    try:
        return plain(_read(text))
    except ValueError:
        return plain(read_relaxed(normalise_text(text)))


def plain(value: JSON) -> JSON:
    """Return a value whose numbers events can carry: an integer beyond 64 bits becomes floating point.

    :raises ValueError: if a number is too large even for that
    """
    match value:
        case bool():
            return value
        case int() if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            try:
                return float(value)
            except OverflowError:
                raise ValueError("a number is too large") from None
        case dict():
            return {name: plain(member) for name, member in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def _read(text: str) -> JSON:
    try:
        return decode_json(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _fenced_texts(text: str) -> Iterator[str]:
    """Yield the texts in code fences of JSON, the last first; the last fence may lack its end."""
    end = len(text)
    for mark in list(_FENCE.finditer(text))[: -2 * CANDIDATES_MAX : -1]:
        language, newline, code = text[mark.end() : end].partition("\n")
        if not newline:
            language, code = "", language
        if language.strip().lower() in _LANGUAGES and code.lstrip()[:1] in ("{", "[", '"'):
            yield code.strip()
        end = mark.start()


def _balanced_texts(text: str, first: str) -> Iterator[str]:
    """Yield the objects and arrays in a text from the last on, those that open with ``first`` before others."""
    spans = _spans(text)[-CANDIDATES_MAX:]
    for begin, end in sorted(spans, key=lambda span: (text[span[0]] != first, -span[0])):
        yield text[begin:end]


def _spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    at = passed = 0
    while (begin := _next_opening(text, at)) >= 0:
        end = _end_of(text, begin)
        if end > 0:
            spans.append((begin, end))
            at = end
            continue
        passed += 1
        # An unfinished JSON value is not searched: an object inside it is not the answer.
        if passed > CANDIDATES_MAX or _LIKE_JSON.match(text, begin):
            break
        at = begin + 1
    return spans


def _next_opening(text: str, at: int) -> int:
    found = [place for sign in _OPENING if (place := text.find(sign, at)) >= 0]
    return min(found, default=-1)


def _end_of(text: str, begin: int) -> int:
    """Return the end of the object or array that begins here, 0 if it has none."""
    closing: list[str] = []
    quoted = False
    at = begin
    while sign := _SIGNS.search(text, at):
        at = sign.end()
        match sign[0]:
            case "\\":
                at += quoted
            case '"':
                quoted = not quoted
            case _ if quoted:
                continue
            case "{" | "[" as opening:
                closing.append(_OPENING[opening])
            case found:
                if closing.pop() != found:
                    return 0
                if not closing:
                    return at
    return 0


DEPTH_MAX = 200
"""Maximum depth of objects and arrays."""

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$-]*|\$[\w$-]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\n": ""}


def read_relaxed(text: str) -> JSON:
    """Read one value.

    :raises ValueError: if the text is not a value
    """
    reader = _Reader(text)
    value = reader.value(0)
    reader.blank()
    if reader.at != len(text):
        raise ValueError(f"there is more text at {reader.at}")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def sign(self) -> str:
        """Return the next character that is not blank, and stay before it."""
        self.blank()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> JSON:
        if depth > DEPTH_MAX:
            raise ValueError("nested too deep")
        match self.sign():
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"' | "'":
                return self._string()
            case _:
                return self._scalar()

    def _object(self, depth: int) -> JSON:
        members: dict[str, Any] = {}
        self.at += 1
        while self.sign() != "}":
            name = self._string() if self.sign() in ('"', "'") else self._name()
            if self.sign() != ":":
                raise ValueError(f"no colon at {self.at}")
            self.at += 1
            members[name] = self.value(depth + 1)
            self._separator("}")
        self.at += 1
        return members

    def _array(self, depth: int) -> JSON:
        items: list[Any] = []
        self.at += 1
        while self.sign() != "]":
            items.append(self.value(depth + 1))
            self._separator("]")
        self.at += 1
        return items

    def _separator(self, closing: str) -> None:
        match self.sign():
            case ",":
                self.at += 1
            case found if found != closing:
                raise ValueError(f"no comma at {self.at}")
            case _:
                pass

    def _name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            raise ValueError(f"no name at {self.at}")
        self.at = found.end()
        return found[0]

    def _scalar(self) -> JSON:
        if (found := _NUMBER.match(self.text, self.at)) is not None:
            self.at = found.end()
            whole = found[0].lstrip("+-").isdecimal()
            number = int(found[0]) if whole and len(found[0]) < 300 else float(found[0])
            if number in (float("inf"), float("-inf")):
                raise ValueError("a number is too large")
            return number
        word = self._name()
        if word not in _WORDS:
            raise ValueError(f"no value at {self.at}: {word[:40]}")
        return _WORDS[word]

    def _string(self) -> str:
        quote = self.text[self.at]
        pieces: list[str] = []
        self.at += 1
        while True:
            found = _PLAIN[quote].match(self.text, self.at)
            assert found is not None
            pieces.append(found[0])
            self.at = found.end() + 1
            sign = self.text[found.end() : self.at]
            if sign == quote:
                return normalise_text("".join(pieces))
            if not sign:
                raise ValueError("a string has no end")
            pieces.append(self._escape())

    def _escape(self) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter != "u":
            return _ESCAPES.get(letter, letter)
        digits = self.text[self.at : self.at + 4]
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise ValueError(f"no character at {self.at}")
        self.at += 4
        return chr(int(digits, 16))
