"""Extraction: find a field of a JSON object anywhere in an answer, from the end backwards. Pure.

The outermost JSON objects in a text are found in linear time. Each opening brace may begin an object, but most texts
have braces that begin none. An attempt parses the text as JSON from a brace on. If it fails, the objects that it has
parsed completely remain. The objects that it left open are not objects, since an attempt from their braces would fail
in the same way. So only braces inside strings are tried again. Two attempts over the same piece of text differ in what
they take for strings. A third would agree with one of them, so the work grows with the length of the text alone.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from callboard.languages.nesting_depth import VALUE_DEPTH_MAX
from callboard.languages.playbook.names import text_of
from callboard.lib.step_limits import Steps, TooManySteps

STEPS_MAX = 2_000_000
"""How many steps the search in one answer may take: some seconds."""

DIGITS_MAX = 4_000
"""Longer whole numbers stay texts, since Python refuses to parse them."""

READ_TIMES = 4
"""How many times as long it takes to parse JSON as to scan it."""


class Extracted(Struct, frozen=True):
    """The field as a text; None if no object has it, or if the search ``takes_long``."""

    value: str | None = None
    takes_long: bool = False


def extract_field(answer: str, field: str) -> Extracted:
    """Return the field of the last object that has it.

    An object takes precedence over the objects inside it, and these over the objects before it.
    """
    steps = Steps(STEPS_MAX)
    try:
        for found in _outermost(answer, steps):
            for one in _with_inner(found, steps):
                if field in one:
                    return Extracted(text_of(one[field]))
    except TooManySteps:
        return Extracted(takes_long=True)
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


_TOKEN = re.compile(
    r"[ \t\n\r]*+(?:"
    r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+)*+(")'
    r"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null|NaN|-?Infinity)"
    r"|([{}\[\]:,]))"
)
"""A string, another scalar, or a mark; the quantifiers are possessive, so that the pattern never backtracks."""

_STRING, _SCALAR = 1, 2
"""Groups of the pattern."""

_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _MORE = range(6)
"""The next token: a value; a value or the end of the array; a key; a key or the end of the object; a colon; a comma or
the end."""


def outermost_objects(text: str, steps: Steps) -> list[tuple[int, int]]:
    """Return begin and end of the objects of a text that no other object contains, in their order.

    A text that nests deeper than values may is not an object.

    :raises TooManySteps: if it takes more steps than ``steps`` has left
    """
    ends: dict[int, int | None] = {}
    found: list[tuple[int, int]] = []
    at = text.find("{")
    while at >= 0:
        if at not in ends:
            ends.update(_attempt(text, at, steps))
        end = ends[at]
        if end is not None:
            found.append((at, end))
        following = text.find("{", at + 1 if end is None else end)
        steps.take_text(following - at)
        at = following
    return found


def _attempt(text: str, at: int, steps: Steps) -> Iterator[tuple[int, int | None]]:
    """Parse a text as JSON from a brace on. Yield begin and end of each object; the end is None if it is incomplete."""
    # The begin of each open object; -1 for an open array.
    opened: list[int] = []
    wanted = _VALUE
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            break
        steps.take_text(token.end() - at)
        at = token.end()
        kind = token.lastindex
        mark = token[0][-1] if kind != _SCALAR else ""
        if kind == _STRING and wanted in (_KEY, _FIRST_KEY):
            wanted = _COLON
        elif kind in (_STRING, _SCALAR) and wanted in (_VALUE, _FIRST_VALUE):
            wanted = _MORE
        elif kind in (_STRING, _SCALAR):
            break
        elif mark in "{[" and wanted in (_VALUE, _FIRST_VALUE) and len(opened) < VALUE_DEPTH_MAX:
            opened.append(at - 1 if mark == "{" else -1)
            wanted = _FIRST_KEY if mark == "{" else _FIRST_VALUE
        elif mark in "}]" and _closes(mark, wanted, opened[-1]):
            begin = opened.pop()
            if begin >= 0:
                yield begin, at
            if not opened:
                return
            wanted = _MORE
        elif mark == ":" and wanted == _COLON:
            wanted = _VALUE
        elif mark == "," and wanted == _MORE:
            wanted = _KEY if opened[-1] >= 0 else _VALUE
        else:
            break
    yield from ((begin, None) for begin in opened if begin >= 0)


def _closes(mark: str, wanted: int, begin: int) -> bool:
    """Whether a mark ends the innermost array or object, which begins at ``begin``."""
    return wanted in ((_MORE, _FIRST_KEY) if mark == "}" else (_MORE, _FIRST_VALUE)) and (begin >= 0) == (mark == "}")
