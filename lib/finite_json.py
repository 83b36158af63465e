"""JSON encoding that refuses NaN and infinity, which msgspec's encoder silently writes as null."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec

from callboard.lib.json_types import JSON
from callboard.lib.text import encode_json


class NotFinite(ValueError):
    """A value contains NaN or an infinity, which JSON cannot represent; ``at`` is the JSON pointer of its place."""

    def __init__(self, number: float, at: str) -> None:
        super().__init__(f"{number} at {at or '/'}")
        self.at = at


def encode_finite(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value as JSON.

    :raises NotFinite: if it contains NaN or an infinity
    :raises TypeError, ValueError, OverflowError, RecursionError: if it cannot be represented in JSON
    """
    text = encode_json(value, enc_hook)
    # The encoder writes such a number as null, so a text without null needs no check.
    if b"null" in text:
        _check(msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook))
    return text


def _check(value: JSON) -> None:
    open_ways: list[tuple[str, Any]] = [("", value)]
    while open_ways:
        at, found = open_ways.pop()
        match found:
            case float() if not isfinite(found):
                raise NotFinite(found, at)
            case dict():
                below = [(f"{at}/{_name_token(name)}", member) for name, member in found.items()]
            case list() | tuple():
                below = [(f"{at}/{index}", item) for index, item in enumerate(found)]
            case _:
                continue
        open_ways += reversed(below)


def _name_token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
