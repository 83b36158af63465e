"""Extraction: find a field of a JSON object anywhere in an answer, from the end backwards."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from callboard.languages.playbook.json_objects import outermost_objects
from callboard.languages.playbook.names import text_of
from callboard.languages.playbook.rules import BOUNDED_TEXTS, LATEST, OUTERMOST_OBJECTS
from callboard.lib.step_limits import Steps, TooManySteps

BRACES_TRIED_MAX = 2_000
"""How many opening braces runs before `OUTERMOST_OBJECTS` try, from the end of the answer."""

STEPS_MAX = 2_000_000
"""How many steps the search in one answer may take: some seconds."""

DIGITS_MAX = 4_000
"""Longer whole numbers stay texts, since Python refuses to parse them."""

READ_TIMES = 4
"""How many times as long it takes to parse JSON as to scan it."""

DEEP_STEPS = 200
"""The steps of an attempt to parse a value that nests too deep."""

_decoder = json.JSONDecoder()


class Extracted(Struct, frozen=True):
    """The field as a text; None if no object has it, or if the search ``takes_long``."""

    value: str | None = None
    takes_long: bool = False


def extract_field(answer: str, field: str, rules: int = LATEST) -> Extracted:
    """Return the field of the last object that has it.

    An object takes precedence over the objects inside it, and these over the objects before it.
    """
    steps = Steps(STEPS_MAX if rules >= BOUNDED_TEXTS else sys.maxsize)
    latest = rules >= OUTERMOST_OBJECTS
    try:
        for found in _outermost(answer, steps) if latest else _objects(answer, steps):
            for one in _with_inner(found, steps):
                if field in one:
                    return Extracted(text_of(one[field]))
    except TooManySteps:
        return Extracted(takes_long=latest)
    except RecursionError:
        return Extracted()
    return Extracted()


def _outermost(text: str, steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield the outermost objects of a text, the last one first."""
    for begin, end in reversed(outermost_objects(text, steps)):
        steps.take_text(READ_TIMES * (end - begin))
        yield json.loads(text[begin:end], parse_int=_whole)


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits


def _objects(text: str, steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield objects of a text, the last one first, as runs before `OUTERMOST_OBJECTS` did: neighbouring objects take
    precedence over the object that contains them."""
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
            # It lies before the previous object and does not contain it.
            yield last[2]
        last = at, end, found
    if last is not None:
        yield last[2]


def _with_inner(value: Any, steps: Steps) -> Iterator[dict[str, Any]]:
    """Yield an object, and then the objects inside it, level by level, the last one first."""
    level = [value]
    while level:
        steps.take(len(level))
        yield from (one for one in level if isinstance(one, dict))
        level = [inner for one in level for inner in reversed(_members(one))]


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
