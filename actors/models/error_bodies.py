"""Error bodies: finds the message in the body of a provider's error, in any shape. Pure.

In addition to the shape of each API there are those of gateways, web frameworks and servers with a compatible API:
``{"error": "…"}``, ``{"detail": [{"loc": […], "msg": "…"}]}``, ``{"message": "…"}``, plain text, a page in HTML.
"""

import re
from collections.abc import Mapping
from html import unescape

import msgspec

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_text

WORDS_CHARS_MAX = 2_000
"""Maximum length of a body's text in a failure, in characters."""

_DEPTH_MAX = 6
_ITEMS_MAX = 5
_NAMES = (
    *("message", "msg", "error_message", "errorMessage", "error_description", "detail", "error", "errors"),
    *("description", "reason", "title", "Message"),
)
"""Members that hold the text of an error, the most specific first."""

_TAG = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)"
    r"|maximum context"
    r"|(?:prompt|input|request|conversation|messages?)\b.{0,40}\btoo (?:long|large)\b"
    r"|too many (?:input |prompt )?tokens"
    r"|token count\b.{0,60}\bexceeds"
    r"|exceeds?\b.{0,60}\b(?:maximum|limit|max)\b.{0,40}\btokens"
    r"|exceeds? the (?:maximum )?(?:request size|size)"
    r"|reduce the length of the (?:messages|prompt|input)"
    r"|request_too_large",
    re.IGNORECASE | re.DOTALL,
)


def words_of(body: str) -> str:
    """Return the message in a body, shortened; empty if there is none."""
    text = normalise_text(body).strip()
    try:
        value: JSON = decode_json(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    found = said_in(value) if value is not None else ""
    return (found or _plain(text))[:WORDS_CHARS_MAX]


def said_in(value: JSON, depth: int = 0) -> str:
    """Return the message in an error's value; empty if there is none."""
    if depth > _DEPTH_MAX:
        return ""
    match value:
        case str():
            return value.strip()
        case list():
            found = [words for item in value[:_ITEMS_MAX] if (words := said_in(item, depth + 1))]
            return "; ".join(found)
        case {"loc": list() as place, "msg": str(words)}:
            return f"{'.'.join(map(str, place))}: {words}"
        case {**members}:
            return next((words for name in _NAMES if (words := said_in(members.get(name), depth + 1))), "")
        case _:
            return ""


def is_error(body: Mapping[str, JSON]) -> bool:
    """Return whether the JSON of an answer, whatever its status, is an error."""
    return (
        body.get("type") == "error" or bool(body.get("error")) or set(body) <= {"detail", "message", "errors", "code"}
    )


def is_too_long(words: str) -> bool:
    """Return whether an error says that a request has more tokens than the model takes."""
    return _TOO_LONG.search(words) is not None


def _plain(text: str) -> str:
    """Return a text, or the text of a page, on one line."""
    if text.startswith("<"):
        text = unescape(_TAG.sub(" ", text[: 8 * WORDS_CHARS_MAX]))
    return " ".join(text.split())
