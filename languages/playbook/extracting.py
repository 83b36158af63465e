"""Extraction: the field of a JSON object that stands somewhere in an answer, looked for from its end."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from callboard.bus.steps import Steps, TooManySteps
from callboard.languages.playbook.names import text_of
from callboard.languages.playbook.rules import BOUNDED_TEXTS, LATEST

BRACES_TRIED_MAX = 2_000
"""Opening braces that are looked at, from the end: what is before them is not searched."""

STEPS_MAX = 2_000_000
"""How many steps the search in one answer may take: some seconds."""

READ_TIMES = 4
"""How many times as long it takes to read JSON as to go through it."""

DEEP_STEPS = 200
"""Steps for what turns out to nest too deep."""

_decoder = json.JSONDecoder()


def extracted(answer: str, field: str, rules: int = LATEST) -> str | None:
    """Return the field of the last object that has it, as a text; None if there is none, or if it takes too long to
    say.

    An object counts before those that stand inside of it, and these before the ones in front of it.
    """
    steps = Steps(STEPS_MAX if rules >= BOUNDED_TEXTS else sys.maxsize)
    try:
        for found in _objects(answer, steps):
            for one in _with_inner(found, steps):
                if field in one:
                    return text_of(one[field])
    except (TooManySteps, RecursionError):
        return None
    return None


def _objects(text: str, steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text that stand in no other, the last one first."""
    last: tuple[int, int, dict[str, Any]] | None = None
    at = len(text)
    for _ in range(BRACES_TRIED_MAX):
        at = text.rfind("{", 0, at)
        if at < 0:
            break
        steps.take(1)
        try:
            found, end = _decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            steps.take_text(READ_TIMES * (error.pos - at))
            continue
        except (ValueError, RecursionError):
            steps.take(DEEP_STEPS)
            continue
        steps.take_text(READ_TIMES * (end - at))
        if last is not None and end < last[1]:
            # In front of the one before, and not around it.
            yield last[2]
        last = at, end, found
    if last is not None:
        yield last[2]


def _with_inner(value: Any, steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield an object, and then those inside of it, the last one first."""
    level = [value]
    while level:
        steps.take(len(level))
        yield from (one for one in level if isinstance(one, dict))
        level = [inner for one in level for inner in reversed(_members(one))]


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
