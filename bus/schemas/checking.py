"""Whether something is a schema, and whether a value fits one. Nothing is ever fetched, and everything is bounded."""

from functools import cache
from types import MappingProxyType
from typing import Any

from callboard.bus.effects import JSON
from callboard.bus.patterns import BadPattern
from callboard.bus.schemas import patterns
from callboard.bus.schemas.application import STEPS_MAX, Application, Formats, TooDeep, Unreachable, Violation
from callboard.bus.schemas.dialects import DRAFT2020, Dialect, dialect_of, schema_of_schemas
from callboard.bus.steps import Steps, TooManySteps

VIOLATIONS_SOUGHT_MAX = 1_000
"""After how many violations of one value no further ones are looked for."""

TOO_DEEP = "nested too deep"
ENDLESS = "the schema refers to itself without end, or the value is nested too deep"

NO_FORMATS: Formats = MappingProxyType({})
PATTERNS: Formats = MappingProxyType({"regex": lambda text: patterns.fault(text) is None})
"""What a schema's own texts must be of: patterns that can be matched."""


class Inapplicable(Exception):
    """A schema cannot be applied to a value; the text says why."""


def violations(
    schema: Any,
    value: JSON,
    *,
    dialect: Dialect | None = None,
    formats: Formats = NO_FORMATS,
    known: bool = False,
    most: int = VIOLATIONS_SOUGHT_MAX,
    steps_max: int = STEPS_MAX,
) -> list[Violation]:
    """Return how a value violates a schema, in the order of its keywords; an empty list if it fits.

    ``known`` says whether references may lead to the published schemas of schemas too.

    :raises Inapplicable: if the schema refers to something outside itself or to itself without end, has a pattern that
        cannot be matched, or takes more than ``steps_max`` steps
    """
    registry = _registry() if known else _nothing()
    application = Application(schema, dialect or dialect_of(schema), registry, formats, Steps(steps_max), most)
    try:
        return application.whole(value)
    except Unreachable as error:
        raise Inapplicable(f"the schema refers to {str(error)!r}, which is not part of it") from None
    except BadPattern as error:
        raise Inapplicable(f"the schema has a pattern that cannot be matched: {error}") from None
    except (TooDeep, RecursionError):
        raise Inapplicable(ENDLESS) from None
    except TooManySteps as error:
        raise Inapplicable(f"applying the schema {error}") from None
    except (AttributeError, TypeError):
        # Nobody has looked at what a reference leads to, or at a schema that was not checked before it is applied.
        raise Inapplicable("a part of the schema is none") from None


def faults(
    schema: Any, *, dialect: Dialect | None = None, formats: Formats = PATTERNS, most: int = VIOLATIONS_SOUGHT_MAX
) -> list[Violation]:
    """Return what keeps a value from being a schema; an empty list if it is one.

    :raises Inapplicable: if it is nested too deep, or takes more than `STEPS_MAX` steps
    """
    spoken = dialect or dialect_of(schema)
    try:
        return violations(schema_of_schemas(spoken), schema, dialect=spoken, formats=formats, most=most)
    except Inapplicable as error:
        text = TOO_DEEP if str(error) == ENDLESS else str(error).replace("applying the schema", "looking at it")
        raise Inapplicable(text) from None


@cache
def _nothing() -> Any:
    from referencing import Registry

    return Registry()


@cache
def _registry() -> Any:
    from jsonschema_specifications import REGISTRY

    return REGISTRY


__all__ = ["DRAFT2020", "ENDLESS", "NO_FORMATS", "TOO_DEEP", "Inapplicable", "Violation", "faults", "violations"]
