"""A strict JSON reader that keeps the line and column of every member and item, and refuses duplicate members.

Numbers follow RFC 8259. Whole numbers outside 64 bits become floating point, as in JavaScript; a number that is too
large for that is refused, because events cannot carry it.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.problems import Location, TextPosition, Tree, format_location
from callboard.lib.json_types import JSON

DEPTH_MAX = 256
"""How deep objects and arrays may nest."""

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""The range of whole numbers that events can carry exactly."""

_BLANK = re.compile(r"[ \t\n\r]*")


class _Malformed(Exception):
    """The text is not JSON at ``at``, a 0-based offset."""

    def __init__(self, message: str, at: int, expected: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.expected = expected


def read_json(text: str) -> Tree | list[Problem]:
    """Read one JSON value; problems have the code ``PARSE``."""
    reader = _Reader(text)
    try:
        value = reader.document()
    except _Malformed as malformed:
        place = reader.place(malformed.at)
        problem = Problem("PARSE", malformed.message, "", place.line, place.column, malformed.expected)
        return [*reader.problems, problem]
    return reader.problems or Tree(value, reader.places)


def plain_number(number: int | float) -> int | float | None:
    """Return a number as events can carry it, or None if they cannot."""
    if isinstance(number, int) and not INTEGER_MIN <= number <= INTEGER_MAX:
        try:
            number = float(number)
        except OverflowError:
            return None
    return None if number in (float("inf"), float("-inf")) or number != number else number


def is_encodable(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8: half a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


class _Reader:
    """One pass over a text. Containers are read here, scalars by the standard library's scanner."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.places: dict[Location, TextPosition] = {}
        self.problems: list[Problem] = []
        self._line_starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self._scalars = json.JSONDecoder(parse_constant=_refuse_constant)

    def place(self, at: int) -> TextPosition:
        line = bisect_right(self._line_starts, at)
        return TextPosition(line, at - self._line_starts[line - 1] + 1)

    def document(self) -> JSON:
        at = self._skip(0)
        self.places[()] = self.place(at)
        value, at = self._value(at, ())
        at = self._skip(at)
        if at < len(self.text):
            raise _Malformed("there is text after the end of the document", at, "nothing more")
        return value

    def _skip(self, at: int) -> int:
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def _value(self, at: int, location: Location) -> tuple[JSON, int]:
        if len(location) > DEPTH_MAX:
            raise _Malformed(f"nested more than {DEPTH_MAX} deep", at)
        match self.text[at : at + 1]:
            case "{":
                return self._object(at, location)
            case "[":
                return self._array(at, location)
            case _:
                return self._scalar(at, location)

    def _scalar(self, at: int, location: Location) -> tuple[JSON, int]:
        try:
            value, end = self._scalars.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            raise _Malformed(_lower_first(error.msg), error.pos, "a JSON value") from None
        except ValueError as error:
            raise _Malformed(str(error), at, "a JSON value") from None
        if isinstance(value, str) and not is_encodable(value):
            self._complain(at, location, "holds half of a surrogate pair")
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = plain_number(value)
            if value is None:
                self._complain(at, location, "is too large a number")
        return value, end

    def _object(self, at: int, location: Location) -> tuple[JSON, int]:
        members: dict[str, Any] = {}
        for start in self._items(at, "}"):
            if self.text[start : start + 1] != '"':
                raise _Malformed("a member's name must be in double quotes", start, 'a name in double quotes, or "}"')
            name, colon = self._scalar(start, location)
            here = (*location, name)
            colon = self._skip(colon)
            if self.text[colon : colon + 1] != ":":
                raise _Malformed(f"no colon after the member name {name!r}", colon, "':'")
            if name in members:
                first = self.places[here]
                self._complain(start, here, f"duplicate member {name!r}, first on line {first.line}")
            else:
                self.places[here] = self.place(start)
            members[name], self._at = self._value(self._skip(colon + 1), here)
        return members, self._at

    def _array(self, at: int, location: Location) -> tuple[JSON, int]:
        items: list[Any] = []
        for start in self._items(at, "]"):
            here = (*location, len(items))
            self.places[here] = self.place(start)
            item, self._at = self._value(start, here)
            items.append(item)
        return items, self._at

    def _items(self, at: int, closing: str) -> Iterator[int]:
        """Yield the offset of each item of a container. The caller must set ``self._at`` to the item's end."""
        self._at = self._skip(at + 1)
        if self.text[self._at : self._at + 1] == closing:
            self._at += 1
            return
        while True:
            yield self._at
            after = self._skip(self._at)
            found = self.text[after : after + 1]
            if found not in (",", closing) or not found:
                raise _Malformed("an item ends without comma or closing bracket", after, f"',' or '{closing}'")
            self._at = after + 1
            if found == closing:
                return
            self._at = self._skip(self._at)

    def _complain(self, at: int, location: Location, message: str) -> None:
        place = self.place(at)
        self.problems.append(Problem("PARSE", message, format_location(location), place.line, place.column))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]
