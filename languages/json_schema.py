"""JSON Schema for interpreters: checks of schemas, and of values against them, with messages. Pure and bounded.

Every language imports this module, and few documents have a schema, so the checker is imported when there is one.
"""

from typing import TYPE_CHECKING, Any

from callboard.lib.json_types import JSON, JsonSchema

if TYPE_CHECKING:
    from callboard.lib.json_schema.application import SchemaViolation

VIOLATIONS_LISTED_MAX = 10
"""How many violations of one value are reported at most."""


def schema_fault(schema: JsonSchema) -> str | None:
    """Return what keeps an object from being a JSON Schema, or None if it is one."""
    from callboard.lib.json_schema import check

    try:
        faults = check.faults(schema, most=1)
    except check.Inapplicable as error:
        return str(error)
    return _message(faults[0]) if faults else None


def violations(schema: JsonSchema, value: JSON) -> list[str]:
    """Return how a value violates a schema, one line per violation; an empty list if it fits.

    A schema that cannot be applied is reported as a violation too: it refers to something outside itself or to itself
    without end, has a pattern that cannot be matched, or takes too many steps.
    """
    from callboard.lib.json_schema import check

    try:
        found = check.violations(schema, value)
    except check.Inapplicable as error:
        return [str(error)]
    found.sort(key=lambda violation: [str(step) for step in violation.path])
    return [_message(violation) for violation in found[:VIOLATIONS_LISTED_MAX]]


def _message(violation: "SchemaViolation") -> str:
    from callboard.lib.json_schema.violation_messages import violation_message

    return f"{_pointer(violation.path)}{violation_message(violation)}"


def _pointer(steps: tuple[Any, ...]) -> str:
    pointer = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return f"{pointer}: " if pointer else ""
