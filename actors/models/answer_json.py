"""Answers as JSON: reads the value that a model meant from the text that it wrote. Pure.

Models put prose around JSON, fence it, write their reasoning before it, and end lists with a comma. The reader takes
the whole text, else the last code fence that holds JSON, else the last balanced object or array; each strictly, then as
JSON with the liberties of JSON5. Its time is linear in the length of the text.
"""

import re
from collections.abc import Iterator
from itertools import chain

import msgspec

from callboard.actors.models.relaxed_json import read_relaxed
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_text

CANDIDATES_MAX = 16
"""Maximum number of fences, objects or arrays that are tried, from the last, and of openings in prose skipped."""

_THOUGHTS = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```+")
_LANGUAGES = frozenset({"", "json", "json5", "jsonc", "jsonl", "javascript", "js"})
_SIGNS = re.compile(r'["\\{}\[\]]')
_OPENING = {"{": "}", "[": "]"}
_LIKE_JSON = re.compile(r'[{\[]\s*["{\[\]}\d-]')

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**64 - 1


def read_json(text: str, *, array: bool = False) -> JSON:
    """Read an answer. ``array``: an array is expected, so one is taken before an object.

    :raises ValueError: if no part of it can be read as JSON
    """
    text = normalise_text(text.removeprefix("\ufeff"))
    answer = _THOUGHTS.sub("", text)
    for candidate in chain((text, answer), _fenced_texts(answer), _balanced_texts(answer, "[" if array else "{")):
        for read in (_read, read_relaxed):
            try:
                return plain(read(candidate))
            except (ValueError, RecursionError):
                continue
    raise ValueError("no JSON in the answer")


def read_whole(text: str) -> JSON:
    """Read a text that is JSON as a whole, with the liberties of JSON5.

    :raises ValueError: if it is not
    """
    try:
        return plain(_read(text))
    except ValueError:
        return plain(read_relaxed(normalise_text(text)))


def plain(value: JSON) -> JSON:
    """Return a value whose numbers events can carry: an integer beyond 64 bits becomes floating point.

    :raises ValueError: if a number is too large even for that
    """
    match value:
        case bool():
            return value
        case int() if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            try:
                return float(value)
            except OverflowError:
                raise ValueError("a number is too large") from None
        case dict():
            return {name: plain(member) for name, member in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def _read(text: str) -> JSON:
    try:
        return decode_json(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _fenced_texts(text: str) -> Iterator[str]:
    """Yield the texts in code fences of JSON, the last first; the last fence may lack its end."""
    end = len(text)
    for mark in list(_FENCE.finditer(text))[: -2 * CANDIDATES_MAX : -1]:
        language, newline, code = text[mark.end() : end].partition("\n")
        if not newline:
            language, code = "", language
        if language.strip().lower() in _LANGUAGES and code.lstrip()[:1] in ("{", "[", '"'):
            yield code.strip()
        end = mark.start()


def _balanced_texts(text: str, first: str) -> Iterator[str]:
    """Yield the objects and arrays in a text from the last on, those that open with ``first`` before others."""
    spans = _spans(text)[-CANDIDATES_MAX:]
    for begin, end in sorted(spans, key=lambda span: (text[span[0]] != first, -span[0])):
        yield text[begin:end]


def _spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    at = passed = 0
    while (begin := _next_opening(text, at)) >= 0:
        end = _end_of(text, begin)
        if end > 0:
            spans.append((begin, end))
            at = end
            continue
        passed += 1
        # An unfinished JSON value is not searched: an object inside it is not the answer.
        if passed > CANDIDATES_MAX or _LIKE_JSON.match(text, begin):
            break
        at = begin + 1
    return spans


def _next_opening(text: str, at: int) -> int:
    found = [place for sign in _OPENING if (place := text.find(sign, at)) >= 0]
    return min(found, default=-1)


def _end_of(text: str, begin: int) -> int:
    """Return the end of the object or array that begins here, 0 if it has none."""
    closing: list[str] = []
    quoted = False
    at = begin
    while sign := _SIGNS.search(text, at):
        at = sign.end()
        match sign[0]:
            case "\\":
                at += quoted
            case '"':
                quoted = not quoted
            case _ if quoted:
                continue
            case "{" | "[" as opening:
                closing.append(_OPENING[opening])
            case found:
                if closing.pop() != found:
                    return 0
                if not closing:
                    return at
    return 0
