"""Extraction: the field of a JSON object that stands somewhere in an answer, looked for from its end."""

import json
from collections.abc import Iterator
from typing import Any

from callboard.languages.playbook.names import text_of

BRACES_TRIED_MAX = 2_000
"""Opening braces that are looked at, from the end: what is before them is not searched."""

_decoder = json.JSONDecoder()


def extracted(answer: str, field: str) -> str | None:
    """Return the field of the last object that has it, as a text; None if there is none.

    An object counts before those that stand inside of it, and these before the ones in front of it.
    """
    for found in _objects(answer):
        for one in _with_inner(found):
            if field in one:
                return text_of(one[field])
    return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text that stand in no other, the last one first."""
    last: tuple[int, int, dict[str, Any]] | None = None
    at = len(text)
    for _ in range(BRACES_TRIED_MAX):
        at = text.rfind("{", 0, at)
        if at < 0:
            break
        try:
            found, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if last is not None and end < last[1]:
            # In front of the one before, and not around it.
            yield last[2]
        last = at, end, found
    if last is not None:
        yield last[2]


def _with_inner(value: Any) -> Iterator[dict[str, Any]]:
    """Yield an object, and then those inside of it, the last one first."""
    level = [value]
    while level:
        yield from (one for one in level if isinstance(one, dict))
        level = [inner for one in level for inner in reversed(_members(one))]


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
