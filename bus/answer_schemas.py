"""Answer schemas: the JSON Schema of the answers to a question, derived from the question's options."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from callboard.lib.json_types import JSON

TEXT: JSON = {"type": "string"}
"""The schema of any text."""


class _Option(NamedTuple):
    """An option: the value that the answer has, and the label that people see."""

    value: JSON
    label: str


def choice(option: JSON) -> _Option:
    """Read an option: a value, or an object with ``value`` and, if wanted, ``label``."""
    if isinstance(option, Mapping) and "value" in option:
        named: Mapping[str, Any] = option
        return _Option(named["value"], str(named.get("label", named["value"])))
    return _Option(option, str(option))


def answer_schema(options: Sequence[JSON]) -> JSON:
    """Return a schema that accepts each of the options; without options it accepts any value."""
    choices = [choice(option) for option in options]
    if not choices:
        return {}
    if all(isinstance(one.value, str) and one.value == one.label for one in choices):
        return {"enum": [one.value for one in choices]}
    return {"oneOf": [{"const": one.value, "title": one.label} for one in choices]}
