"""Text from outside: every string that enters the log is valid Unicode.

A surrogate code point is half of a character in UTF-16. JSON may carry one as an escape (``\\ud83d``), but UTF-8 cannot
encode it, so an event that holds one cannot be stored. All functions here join a high and a low half that follow each
other into their character, and replace a half on its own by U+FFFD. Pure.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

_UTF_16 = "utf-16-le"


def normalise_text(text: str) -> str:
    """Return a text without surrogates; a text without any is returned unchanged."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(_UTF_16, "surrogatepass").decode(_UTF_16, "replace")
    return text


def join_surrogates(text: str) -> str:
    """Return a text with its surrogate pairs joined; halves on their own remain."""
    if text.isascii():
        return text
    return text.encode(_UTF_16, "surrogatepass").decode(_UTF_16, "surrogatepass")


def normalise_json(value: Any) -> Any:
    """Return a copy of a JSON value whose strings and keys have no surrogates, whatever its depth."""
    open_copies: list[Any] = []
    copied = _copy(value, open_copies)
    while open_copies:
        one = open_copies.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)):
            one[key] = _copy(one[key], open_copies)
    return copied


def _copy(value: Any, open_copies: list[Any]) -> Any:
    """Copy one level of a value; a container is added to ``open_copies``, so that its members are copied later."""
    match value:
        case str():
            return normalise_text(value)
        case dict():
            copy: Any = {normalise_text(key) if isinstance(key, str) else key: value[key] for key in value}
        case list() | tuple():
            copy = list(value)
        case _:
            return value
    open_copies.append(copy)
    return copy


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_BRACES = re.compile(r"\{([^{}]*)\}")


def without_addresses(text: str) -> str:
    """Return a text without the addresses in memory that the default ``repr`` of objects has: each process has others.

    It is for texts that code has made of objects, such as messages of exceptions.
    """
    return _ADDRESS.sub("", text) if " at 0x" in text else text


def without_order(text: str) -> str:
    """Return a text such as the message of an exception with the elements of sets in it sorted, to compare it with the
    text of another process."""
    return _BRACES.sub(lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", text)


_HEAD_CHARS, _BEFORE_CHARS, _SHOWN_CHARS = 80, 40, 240
"""How many characters `around_difference` shows: at the beginning, before the difference, and in all."""


def around_difference(text: str, other: str) -> str:
    """Return a text, shortened to its beginning and what is around the first difference from another text."""
    if len(text) <= _SHOWN_CHARS:
        return text
    same = next((at for at, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))
    start = same - _BEFORE_CHARS
    if start <= _HEAD_CHARS:
        return f"{text[:_SHOWN_CHARS]}…"
    end = start + _SHOWN_CHARS - _HEAD_CHARS
    return f"{text[:_HEAD_CHARS]}…{text[start:end]}{'…' if end < len(text) else ''}"


class Joiner:
    """Repairs a text that arrives in pieces: the first half of a pair is kept until the piece with the second half."""

    def __init__(self) -> None:
        self._first = ""

    def take(self, piece: str) -> str:
        """Add the next piece; return the text that is complete."""
        text = self._first + piece
        self._first = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return normalise_text(text[:-1] if self._first else text)

    def rest(self) -> str:
        """Return the half that was kept, repaired, after the last piece."""
        rest, self._first = normalise_text(self._first), ""
        return rest


def encode_json(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value as JSON; repair its texts if necessary.

    :raises TypeError, ValueError, OverflowError, RecursionError: if it cannot be represented in JSON
    """
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
        return msgspec.json.encode(normalise_json(plain))


LINE_CHARS_MAX = 1_000
"""A longer line of printed output or of a traceback is left out: a cut line could show part of a secret."""


def last_lines(text: str, chars_max: int) -> str:
    """Return as many of the last lines of a text as fit; a line with an ellipsis replaces the earlier ones."""
    kept: list[str] = []
    room = chars_max
    for line in reversed(text.rstrip().split("\n")):
        line = line if len(line) <= LINE_CHARS_MAX else f"… (a line of {len(line)} characters)"
        room -= len(line) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join(reversed(kept))
