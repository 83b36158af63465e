"""The data of a question as lines of text, for the person who answers it."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from callboard.lib.json_types import JSON

DATA_CHARS_MAX = 8_000
"""The maximum number of characters of a question's data that are shown. The last line says how many more there are."""

ON_ONE_LINE_CHARS_MAX = 100
"""The maximum length of data that is shown on one line."""


def data_lines(data: JSON, question: str = "", chars_max: int = DATA_CHARS_MAX) -> list[str]:
    """Return the data of a question as lines. Members that are empty or repeat the question are left out."""
    shown = without_repetitions(data, question)
    if shown is None:
        return []
    lines = list(_lines(shown))
    joined = "; ".join(line.strip() for line in lines)
    flat = isinstance(shown, Mapping) and not any(line.startswith(" ") for line in lines)
    if flat and len(joined) <= ON_ONE_LINE_CHARS_MAX:
        return [joined]
    text = "\n".join(lines)
    if len(text) <= chars_max:
        return lines
    return [*text[:chars_max].splitlines(), f"… ({len(text) - chars_max} more characters are not shown)"]


def without_repetitions(data: JSON, question: str = "") -> JSON:
    """Return the data without empty members and repetitions of the question; None if nothing remains."""
    if isinstance(data, Mapping):
        found = {name: value for name, value in data.items() if not _is_empty(value) and value != question}
        return found or None
    return None if _is_empty(data) or data == question else data


def _is_empty(value: JSON) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _lines(value: JSON) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield from _text(value).splitlines() or [""]
        return
    for name, member in value.items():
        first, *rest = _text(member).splitlines() or [""]
        if not rest:
            yield f"{name}: {first}"
            continue
        yield f"{name}:"
        for line in (first, *rest):
            yield f"  {line}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    encoded = msgspec.json.encode(value)
    if not isinstance(value, dict | list) or len(encoded) <= ON_ONE_LINE_CHARS_MAX:
        return encoded.decode()
    return msgspec.json.format(encoded, indent=2).decode()
