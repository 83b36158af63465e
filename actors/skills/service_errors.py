"""What is told of a service's refusal: its own words, found in whatever it answered, and what to do about it."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from callboard.bus.decoding import decode_json
from callboard.bus.json_errors import JSON_ERRORS

SAID_CHARS_MAX = 500
"""How much of a service's own words is told."""

SAID_MAX = 5
"""How many messages of one answer are told."""

SECRET_CHARS_MIN = 4
"""Shorter values are not looked for: taking them out would mangle words."""

_MESSAGES = ("message", "detail", "error_description", "error", "title", "reason", "code", "description")
"""Members that hold a message, the most telling first."""


class Trouble(Struct, frozen=True):
    """An answer that is no success: its status, the pause it asks for (seconds), and whose credential was used."""

    status: int
    retry_after_s: float | None
    credential: str

    @property
    def remedy(self) -> str:
        """What may help, in one sentence without a full stop."""
        if self.status == 429 or (self.status == 403 and self.retry_after_s is not None):
            when = f"in {self.retry_after_s:g} s" if self.retry_after_s is not None else "later"
            return f"Too many requests were made: try again {when}, or do with less"
        if self.status >= 500:
            return "The fault is the service's: try again later, or go on without it"
        return self._refusal()

    def _refusal(self) -> str:
        match self.status:
            case 401:
                return f"{self.credential} is not accepted: whoever runs the worker has to set a valid one"
            case 403:
                return f"{self.credential} is not allowed to do this: ask for its rights, or for something else"
            case 404:
                return f"There is no such thing, or {self.credential} may not see it: check the names in the input"
            case 300 | 301 | 302 | 303 | 304 | 305 | 307 | 308:
                return "It has moved: whoever runs the worker should check the address of the service"
            case _:
                return "Correct the input, going by what the service says"


def said_in(body: bytes) -> str:
    """Return the messages in an answer, in short; of one that is no JSON its beginning, unless it is a page."""
    try:
        value = decode_json(body)
    except JSON_ERRORS:
        text = body[: 4 * SAID_CHARS_MAX].decode("utf-8", "replace").strip()
        return "" if text.startswith("<") else _brief(text)
    found = dict.fromkeys(text for text in _messages(value) if text)
    return _brief("; ".join(list(found)[:SAID_MAX]))


def _messages(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value.strip()
        case list():
            for item in value[:SAID_MAX]:
                yield from _messages(item)
        case dict():
            yield from _main(value)
            yield from _messages(value.get("errors"))
        case _:
            return


def _main(value: dict[str, Any]) -> Iterator[str]:
    """Yield the most telling member that is a text; errors of a field are told with its name."""
    where = value.get("field")
    for name in _MESSAGES:
        told = value.get(name)
        if isinstance(told, dict):
            yield from _main(told)
            return
        if isinstance(told, str) and told:
            yield f"{where}: {told}" if isinstance(where, str) else told
            return


def without(text: str, secrets: Iterable[str]) -> str:
    """Take values that must not be told out of a text, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, "[secret]")
    return text


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}…"
