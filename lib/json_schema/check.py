"""Checks whether a document is a schema, and whether a value fits one, with limited steps and without any download."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from callboard.lib.json_schema import patterns
from callboard.lib.json_schema.application import (
    STEPS_MAX,
    Application,
    Formats,
    SchemaTooDeep,
    SchemaViolation,
    Unreachable,
)
from callboard.lib.json_schema.dialects import DRAFT2020, Dialect, dialect_of, schema_of_schemas
from callboard.lib.json_types import JSON
from callboard.lib.patterns import BadPattern
from callboard.lib.step_limits import Steps, TooManySteps

VIOLATIONS_SOUGHT_MAX = 1_000
"""Maximum number of violations to look for in one value."""

TOO_DEEP = "nested too deep"
ENDLESS = "the schema refers to itself without end, or the value is nested too deep"

NO_FORMATS: Formats = MappingProxyType({})
PATTERNS: Formats = MappingProxyType({"regex": lambda text: patterns.fault(text) is None})
"""The formats that texts of a schema must have: its patterns must be valid."""


class Inapplicable(Exception):
    """A schema cannot be applied to a value; the text is the reason."""


def violations(
    schema: Any,
    value: JSON,
    *,
    dialect: Dialect | None = None,
    formats: Formats = NO_FORMATS,
    known: bool = False,
    most: int = VIOLATIONS_SOUGHT_MAX,
    steps_max: int = STEPS_MAX,
) -> list[SchemaViolation]:
    """Return the violations of a schema by a value, in the order of the keywords; an empty list if it fits.

    With ``known`` references may also lead to the published meta-schemas.

    :raises Inapplicable: if the schema refers to something outside itself or to itself without end, has an invalid
        pattern, or takes more than ``steps_max`` steps
    """
    spoken = dialect or dialect_of(schema)
    application = Application(schema, spoken, read_meta_schemas if known else dict, formats, Steps(steps_max), most)
    try:
        return application.whole(value)
    except Unreachable as error:
        raise Inapplicable(f"the schema refers to {str(error)!r}, which is not part of it") from None
    except BadPattern as error:
        raise Inapplicable(f"the schema has a pattern that cannot be matched: {error}") from None
    except (SchemaTooDeep, RecursionError):
        raise Inapplicable(ENDLESS) from None
    except TooManySteps as error:
        raise Inapplicable(f"applying the schema {error}") from None
    except (AttributeError, TypeError):
        # The target of a reference is not checked before, and neither is a schema if the caller did not check it.
        raise Inapplicable("a part of the schema is none") from None


def faults(
    schema: Any, *, dialect: Dialect | None = None, formats: Formats = PATTERNS, most: int = VIOLATIONS_SOUGHT_MAX
) -> list[SchemaViolation]:
    """Return the reasons why a value is not a schema; an empty list if it is one.

    :raises Inapplicable: if it nests too deeply, or takes more than `STEPS_MAX` steps
    """
    spoken = dialect or dialect_of(schema)
    try:
        return violations(schema_of_schemas(spoken), schema, dialect=spoken, formats=formats, most=most)
    except Inapplicable as error:
        text = TOO_DEEP if str(error) == ENDLESS else str(error).replace("applying the schema", "looking at it")
        raise Inapplicable(text) from None


@cache
def read_meta_schemas() -> Mapping[str, Any]:
    """Return the published meta-schemas by their URIs. To read them takes long, and few schemas refer to one."""
    from jsonschema_specifications import REGISTRY

    return {uri: REGISTRY.contents(uri) for uri in REGISTRY}


__all__ = ["DRAFT2020", "ENDLESS", "NO_FORMATS", "TOO_DEEP", "Inapplicable", "SchemaViolation", "faults", "violations"]
