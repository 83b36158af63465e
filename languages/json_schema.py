"""JSON Schema for interpreters: is this a schema, and does this value fit it. Pure: no reference is ever fetched.

Patterns are matched within a bound (`schema_patterns`), so that no schema and no value can hold up an interpreter.
"""

from typing import Any

from callboard.bus.effects import JSON, JsonSchema
from callboard.bus.schemas import ENDLESS, TOO_DEEP, schema_error
from callboard.languages import schema_patterns
from callboard.languages.patterns import BadPattern

VIOLATIONS_LISTED_MAX = 10
"""How many violations of one value are told at most."""

MESSAGE_CHARS_MAX = 300
"""How long the text of one violation may be; validators repeat the offending value in it."""


def schema_fault(schema: JsonSchema) -> str | None:
    """Return what keeps an object from being a JSON Schema, or None if it is one."""
    from jsonschema import FormatChecker
    from jsonschema.validators import Draft202012Validator, validator_for

    formats = FormatChecker(formats=())
    formats.checks("regex")(lambda text: not isinstance(text, str) or schema_patterns.fault(text) is None)
    try:
        error = schema_error(schema, validator_for(schema, Draft202012Validator), formats)
    except RecursionError:
        return TOO_DEEP
    return f"{_pointer(error.absolute_path)}{_cut(_schema_message(error))}" if error is not None else None


def _schema_message(error: Any) -> str:
    if (error.validator, error.validator_value) == ("format", "regex"):
        return f"{error.instance!r} is no regular expression: {schema_patterns.fault(error.instance)}"
    return error.message


def violations(schema: JsonSchema, value: JSON) -> list[str]:
    """Return how a value violates a schema, one line per violation; an empty list if it fits.

    A schema that cannot be applied, because it refers to something outside itself, refers to itself without end or
    has a pattern that cannot be matched, is told as a violation too.
    """
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    from callboard.languages.json_keywords import bounded

    registry: Registry[Any] = Registry()
    validator = bounded(validator_for(schema, Draft202012Validator))(schema, registry=registry)
    try:
        errors = sorted(validator.iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])
    except Unresolvable as error:
        return [f"the schema refers to {error.ref!r}, which is not part of it"]
    except BadPattern as error:
        return [f"the schema has a pattern that cannot be matched: {error}"]
    except RecursionError:
        return [ENDLESS]
    return [f"{_pointer(error.absolute_path)}{_cut(error.message)}" for error in errors[:VIOLATIONS_LISTED_MAX]]


def _pointer(steps: Any) -> str:
    pointer = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    return f"{pointer}: " if pointer else ""


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 1] + "…"
