"""Relaxed JSON: reads what people and models write as JSON, with the liberties of JSON5. Pure.

Accepted beyond JSON: trailing commas, comments, names without quotes, single quotes, line breaks within strings, a sign
or a dot at the edge of a number, and Python's ``True``, ``False`` and ``None``. ``NaN`` and ``Infinity`` are refused.
"""

import re
from typing import Any

from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_text

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
