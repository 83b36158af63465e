"""Interpolation: placeholders become values, in one pass and verbatim; what has no value stays as it stands."""

import json
from collections.abc import Callable
from re import Match

from msgspec import Struct

from callboard.languages.playbook.patterns import PLACEHOLDER

Find = Callable[[str], str | None]


class Rendered(Struct, frozen=True):
    """A text with values in it, and the names of the placeholders that have none, each once."""

    text: str
    missing: tuple[str, ...] = ()


def rendered(text: str, find: Find) -> Rendered:
    """Put values into a text."""
    missing: dict[str, None] = {}

    def value(match: Match[str]) -> str:
        found = _value(match, find)
        if found is None:
            missing[match[1]] = None
            return match[0]
        return found

    return Rendered(PLACEHOLDER.sub(value, text), tuple(missing))


def rendered_json(text: str, find: Find) -> Rendered:
    """Put values into the text of a JSON value: inside of a string escaped, elsewhere as JSON or else as a string."""
    missing: dict[str, None] = {}
    pieces: list[str] = []
    quoted, at = False, 0
    for match in PLACEHOLDER.finditer(text):
        between = text[at : match.start()]
        quoted = _quoted_behind(between, quoted)
        found = _value(match, find)
        if found is None:
            missing[match[1]] = None
            found = match[0]
        pieces += [between, json.dumps(found)[1:-1] if quoted else _as_json(found)]
        at = match.end()
    return Rendered("".join([*pieces, text[at:]]), tuple(missing))


def _value(match: Match[str], find: Find) -> str | None:
    """Return what a placeholder stands for; its own default if nothing has its name."""
    found = find(match[1])
    return match[2] if found is None else found


def _quoted_behind(text: str, quoted: bool) -> bool:
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
