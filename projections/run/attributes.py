"""Attributes: named values from a run's input, arguments or output by which callers find the run.

A path starts with ``input``, ``arguments`` or ``output``, followed by members separated by dots:
``input.customer.id``, ``output.items.0.sku``. A value is an attribute if it is a text, a number or a boolean, or a
list of those.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

ROOTS = ("input", "arguments", "output")

PATH = re.compile(rf"(?:{'|'.join(ROOTS)})(?:\.[^.]+)*")

VALUES_MAX = 32
"""Maximum number of values taken from a list."""

VALUE_CHARS_MAX = 256
"""Maximum number of characters taken from a text."""

Value = str | int | float | bool
Values = Value | list[Value]


def attributes(paths: Mapping[str, str], documents: Mapping[str, Any]) -> dict[str, Values]:
    """Return the values at named paths, by name. ``documents`` has a document for each root that is known so far."""
    found: dict[str, Values] = {}
    for name, path in paths.items():
        root, *steps = path.split(".")
        values = _values(_follow(documents[root], steps)) if root in documents else None
        if values is not None:
            found[name] = values
    return found


def _follow(document: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(document, dict):
            document = cast("dict[str, Any]", document).get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document


def _values(found: Any) -> Values | None:
    if isinstance(found, list):
        values = [value for one in found[:VALUES_MAX] if (value := _value(one)) is not None]
        return values or None
    return _value(found)


def _value(found: Any) -> Value | None:
    if isinstance(found, str):
        return found[:VALUE_CHARS_MAX]
    return found if isinstance(found, int | float) else None
