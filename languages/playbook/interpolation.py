"""Interpolation: replace placeholders with their values, in one pass and verbatim. Placeholders without a value stay.
The steps are counted, and the length of the resulting text is bounded."""

import json
import sys
from collections.abc import Callable
from re import Match

from msgspec import Struct

from callboard.languages.playbook.patterns import PLACEHOLDER
from callboard.lib.step_limits import Steps

Find = Callable[[str], str | None]

CHARS_MAX = 32_000_000
"""The greatest length of a text with its values, in characters."""


class TextTooLong(Exception):
    """A text with its values has more than `CHARS_MAX` characters."""

    def __init__(self) -> None:
        super().__init__(f"with its values the text has more than {CHARS_MAX} characters; use shorter values")


class _RenderingLimits:
    """The limits of one rendering."""

    def __init__(self) -> None:
        self._steps = Steps(sys.maxsize)
        self._chars_left = CHARS_MAX

    def take(self, text: str) -> str:
        """Count a piece of the text, and return it.

        :raises TextTooLong: if the text becomes too long
        """
        self._steps.take_text(len(text))
        self._chars_left -= len(text)
        if self._chars_left < 0:
            raise TextTooLong
        return text


class Rendered(Struct, frozen=True):
    """A text with its values, and the names of the placeholders without a value, each once."""

    text: str
    missing: tuple[str, ...] = ()


def render(text: str, find: Find) -> Rendered:
    """Replace the placeholders of a text.

    :raises TextTooLong: if the text becomes too long
    """
    missing: dict[str, None] = {}
    room = _RenderingLimits()
    room.take(text)

    def value(match: Match[str]) -> str:
        found = _value(match, find)
        if found is None:
            missing[match[1]] = None
            return match[0]
        return room.take(found)

    return Rendered(PLACEHOLDER.sub(value, text), tuple(missing))


def render_json(text: str, find: Find) -> Rendered:
    """Replace the placeholders in the text of a JSON value.

    Inside a string a value is escaped. Elsewhere it is inserted as it is if it is JSON, and as a string if not.

    :raises TextTooLong: if the text becomes too long
    """
    missing: dict[str, None] = {}
    room = _RenderingLimits()
    room.take(text)
    pieces: list[str] = []
    quoted, at = False, 0
    for match in PLACEHOLDER.finditer(text):
        between = text[at : match.start()]
        quoted = _ends_quoted(between, quoted)
        found = _value(match, find)
        if found is None:
            missing[match[1]] = None
            found = match[0]
        room.take(found)
        pieces += [between, json.dumps(found)[1:-1] if quoted else _as_json(found)]
        at = match.end()
    return Rendered("".join([*pieces, text[at:]]), tuple(missing))


def _value(match: Match[str], find: Find) -> str | None:
    """Return the value of a placeholder, else its default, else None."""
    found = find(match[1])
    return match[2] if found is None else found


def _ends_quoted(text: str, quoted: bool) -> bool:
    """Whether a piece of JSON ends inside a string; ``quoted`` says whether it begins inside one."""
    escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = quoted
        elif character == '"':
            quoted = not quoted
    return quoted


def _as_json(value: str) -> str:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return json.dumps(value)
    return value
