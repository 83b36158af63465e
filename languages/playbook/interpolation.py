"""Interpolation: placeholders become values, in one pass and verbatim; what has no value stays as it stands. What that
takes is counted, and how long a text may become has a bound."""

import json
import sys
from collections.abc import Callable
from re import Match

from msgspec import Struct

from callboard.languages.playbook.patterns import PLACEHOLDER
from callboard.languages.playbook.rules import BOUNDED_TEXTS, LATEST
from callboard.lib.step_limits import Steps

Find = Callable[[str], str | None]

CHARS_MAX = 32_000_000
"""How many characters a text may have with its values in it."""


class TooMuchText(Exception):
    """A text with its values in it has more than `CHARS_MAX` characters."""

    def __init__(self) -> None:
        super().__init__(f"with its values the text has more than {CHARS_MAX} characters; use shorter values")


class Room:
    """What one rendering may take."""

    def __init__(self, rules: int) -> None:
        self._steps = Steps(sys.maxsize)
        self._chars_left = CHARS_MAX if rules >= BOUNDED_TEXTS else sys.maxsize

    def take(self, text: str) -> str:
        """Count a piece of the text, and return it.

        :raises TooMuchText: if the text becomes too long
        """
        self._steps.take_text(len(text))
        self._chars_left -= len(text)
        if self._chars_left < 0:
            raise TooMuchText
        return text


class Rendered(Struct, frozen=True):
    """A text with values in it, and the names of the placeholders that have none, each once."""

    text: str
    missing: tuple[str, ...] = ()


def render(text: str, find: Find, rules: int = LATEST) -> Rendered:
    """Put values into a text.

    :raises TooMuchText: if it becomes too long
    """
    missing: dict[str, None] = {}
    room = Room(rules)
    room.take(text)

    def value(match: Match[str]) -> str:
        found = _value(match, find)
        if found is None:
            missing[match[1]] = None
            return match[0]
        return room.take(found)

    return Rendered(PLACEHOLDER.sub(value, text), tuple(missing))


def render_json(text: str, find: Find, rules: int = LATEST) -> Rendered:
    """Put values into the text of a JSON value: inside of a string escaped, elsewhere as JSON or else as a string.

    :raises TooMuchText: if it becomes too long
    """
    missing: dict[str, None] = {}
    room = Room(rules)
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
    """Return what a placeholder represents; its own default if nothing has its name."""
    found = find(match[1])
    return match[2] if found is None else found


def _ends_quoted(text: str, quoted: bool) -> bool:
    """Whether a piece of JSON, which begins inside of a string or not, ends inside of one."""
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
