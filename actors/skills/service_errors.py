"""Texts about a service's refusal: the service's own words, found in any form of answer, and a remedy."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

SAID_CHARS_MAX = 500
"""Maximum length of a service's own words in a message."""

SAID_MAX = 5
"""Maximum number of messages of one answer that are quoted."""

SECRET_CHARS_MIN = 4
"""Shorter values are not removed: removing them would mangle words."""

_MESSAGES = ("message", "detail", "error_description", "error", "title", "reason", "code", "description")
"""Members that hold a message, the most informative first."""


class Trouble(Struct, frozen=True):
    """An unsuccessful answer: its status, the pause it asks for (seconds), and the setting of the credential used."""

    status: int
    retry_after_s: float | None
    credential: str

    @property
    def remedy(self) -> str:
        """The remedy, in one sentence without a full stop."""
        if self.status == 429 or (self.status == 403 and self.retry_after_s is not None):
            when = f"in {self.retry_after_s:g} s" if self.retry_after_s is not None else "later"
            return f"Too many requests were made: try again {when}, or do with less"
        if self.status >= 500:
            return "The fault is the service's: try again later, or continue without it"
        return self._refusal()

    def _refusal(self) -> str:
        match self.status:
            case 401:
                return f"{self.credential} is not accepted: the operator of the worker has to set a valid one"
            case 403:
                return f"{self.credential} is not allowed to do this: ask for its rights, or for something else"
            case 404:
                return f"There is no such thing, or {self.credential} may not see it: check the names in the input"
            case 300 | 301 | 302 | 303 | 304 | 305 | 307 | 308:
                return "It has moved: the operator of the worker should check the address of the service"
            case _:
                return "Correct the input, going by what the service says"


def said_in(body: bytes) -> str:
    """Return the messages in an answer, shortened; if it is not JSON, its beginning, unless it is a web page."""
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
    """Yield the most informative member that is a text; an error of a field is prefixed with the field's name."""
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
    """Remove secret values from a text, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, "[secret]")
    return text


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SAID_CHARS_MAX else f"{text[:SAID_CHARS_MAX]}…"
