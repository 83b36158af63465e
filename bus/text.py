"""Text from outside: every string that enters the log is valid Unicode.

A surrogate code point is half of a character in UTF-16. JSON may carry one as an escape (``\\ud83d``), but UTF-8 cannot
encode it, so an event that holds one cannot be stored. Both functions join a high and a low half that follow each other
into their character, and replace a half on its own by U+FFFD.
"""

from typing import Any

_UTF_16 = "utf-16-le"


def normalise_text(text: str) -> str:
    """Return a text without surrogates; a text that has none is returned as it is."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(_UTF_16, "surrogatepass").decode(_UTF_16, "replace")
    return text


def normalise_json(value: Any) -> Any:
    """Return a copy of a JSON value whose strings and keys have no surrogates, whatever its depth."""
    open_copies: list[Any] = []
    copied = _copied(value, open_copies)
    while open_copies:
        one = open_copies.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)):
            one[key] = _copied(one[key], open_copies)
    return copied


def _copied(value: Any, open_copies: list[Any]) -> Any:
    """Copy one level of a value; its containers are added to those whose members are still to be copied."""
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
