"""JSON Schema for interpreters: checks of schemas, and of values against them, with messages. Pure and bounded."""

from typing import Any

from callboard.lib.json_schema import check
from callboard.lib.json_schema.violation_messages import violation_message
from callboard.lib.json_types import JSON, JsonSchema

VIOLATIONS_LISTED_MAX = 10
"""How many violations of one value are reported at most."""


def schema_fault(schema: JsonSchema) -> str | None:
    """Return what keeps an object from being a JSON Schema, or None if it is one."""
    try:
        faults = check.faults(schema, most=1)
    except check.Inapplicable as error:
        return str(error)
    return f"{_pointer(faults[0].path)}{violation_message(faults[0])}" if faults else None


def violations(schema: JsonSchema, value: JSON) -> list[str]:
    """Return how a value violates a schema, one line per violation; an empty list if it fits.

    A schema that cannot be applied is reported as a violation too: it refers to something outside itself or to itself
    without end, has a pattern that cannot be matched, or takes too many steps.
    """
    try:
        found = check.violations(schema, value)
    except check.Inapplicable as error:
        return [str(error)]
    found.sort(key=lambda violation: [str(step) for step in violation.path])
    return [f"{_pointer(violation.path)}{violation_message(violation)}" for violation in found[:VIOLATIONS_LISTED_MAX]]


def _pointer(steps: tuple[Any, ...]) -> str:
    pointer = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return f"{pointer}: " if pointer else ""
