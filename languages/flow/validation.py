"""Arguments against their declared parameters: JSON Schema 2020-12, closed by default and with formats asserted.

Source: page *Flow object*, sections *parameters* and *Validation*. A `Schema` is compiled once and used many times.
Nothing is ever fetched: a reference that leads out of the schema, but for JSON Schema's own documents, is a fault.
"""

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from callboard.bus.effects import JSON, JsonSchema
from callboard.bus.schemas import ENDLESS, TOO_DEEP
from callboard.languages import schema_patterns
from callboard.languages.flow.formats import FORMATS
from callboard.languages.patterns import BadPattern
from callboard.languages.problems import Location, kind_of

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

VIOLATIONS_SOUGHT_MAX = 100
"""After how many violations of one value no further ones are looked for."""

VIOLATIONS_LISTED_MAX = 10
"""How many violations of one value are told at most."""

TEXT_CHARS_MAX = 200
"""How much of a schema's value a violation repeats in its message, in characters."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A value that does not fit a schema: which keyword it offends, and where, both as JSON pointers.

    ``schema_path`` leads through references by their keyword (``/properties/a/$ref/type``). ``all`` has the further
    violations of the same validation, `VIOLATIONS_LISTED_MAX` with this one at most; theirs are empty.
    """

    schema_path: str
    instance_path: str
    value: JSON
    message: str
    all: tuple["Violation", ...] = ()

    def __str__(self) -> str:
        return f"{self.instance_path}: {self.message}" if self.instance_path else self.message

    def details(self) -> dict[str, JSON]:
        """Return what a failure with the code ``System.ParameterValidationFailed`` carries as its details."""
        told: dict[str, JSON] = {
            "schemaPath": self.schema_path,
            "instancePath": self.instance_path,
            "value": self.value,
            "message": self.message,
        }
        if self.all:
            told["further"] = [one.details() for one in self.all]
        return told


class Schema:
    """The parameters that something declares: what arguments it takes, and what it takes them for if they are left out.

    ``schema`` None is the schema of what takes no arguments: only an empty object fits.
    """

    def __init__(self, schema: JsonSchema | None) -> None:
        self.schema: JsonSchema = {"type": "object"} if schema is None else schema

    def violation(self, value: JSON) -> Violation | None:
        """Return how arguments violate the schema, or None if they fit it."""
        from referencing.exceptions import Unresolvable

        try:
            errors = list(islice(self._validator.iter_errors(value), VIOLATIONS_SOUGHT_MAX))
        except Unresolvable as error:
            return Violation("", "", value, f"the schema refers to {error.ref!r}, which is not part of it")
        except BadPattern as error:
            return Violation("", "", value, f"the schema has a pattern that cannot be matched: {error}")
        except RecursionError:
            return Violation("", "", value, ENDLESS)
        if not errors:
            return None
        first, *further = _told(errors)
        return replace(first, all=tuple(further))

    @cached_property
    def defaults(self) -> dict[str, JSON]:
        """The declared ``default`` of every top-level property that has one."""
        properties: Any = self.schema.get("properties", {})
        return {
            name: deepcopy(declared["default"])
            for name, declared in (properties.items() if isinstance(properties, dict) else ())
            if isinstance(declared, dict) and "default" in declared
        }

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the declared parameters."""
        properties: Any = self.schema.get("properties", {})
        return tuple(properties) if isinstance(properties, dict) else ()

    @cached_property
    def _validator(self) -> "Validator":
        return _validator({"additionalProperties": False, **self.schema})


def schema_faults(schema: JSON) -> list[tuple[Location, str]]:
    """Return what keeps a value from being a JSON Schema 2020-12 that can be applied, and where in it."""
    try:
        errors = list(islice(_of_schemas().iter_errors(schema), VIOLATIONS_SOUGHT_MAX))
    except RecursionError:
        return [((), f"is {TOO_DEEP}")]
    if errors:
        closest = {tuple(error.absolute_path): error for error in reversed(errors)}
        told = [(location, _schema_message(location, error)) for location, error in reversed(closest.items())]
        return told[:VIOLATIONS_LISTED_MAX]
    return list(islice(_dangling(schema), VIOLATIONS_LISTED_MAX))


def _schema_message(location: Location, error: "ValidationError") -> str:
    if location[-1:] == ("type",) and error.validator == "anyOf":
        return f"{_short(error.instance)} is no type that JSON has"
    if (error.validator, error.validator_value) == ("format", "regex"):
        return f"{_short(error.instance)} is no regular expression: {schema_patterns.fault(cast(str, error.instance))}"
    return _message(error)


@cache
def _of_schemas() -> "Validator":
    from jsonschema.validators import Draft202012Validator

    return _validator(cast("JsonSchema", Draft202012Validator.META_SCHEMA))


def _validator(schema: JsonSchema) -> "Validator":
    from jsonschema.validators import Draft202012Validator
    from jsonschema_specifications import REGISTRY

    from callboard.languages.json_keywords import bounded

    return bounded(Draft202012Validator)(schema, registry=REGISTRY, format_checker=_formats())


@cache
def _formats() -> "FormatChecker":
    from jsonschema import FormatChecker

    formats = FormatChecker(formats=())
    for name, check in FORMATS.items():
        formats.checks(name)(_of_strings(check))
    return formats


def _of_strings(check: Any) -> Any:
    return lambda value: not isinstance(value, str) or check(value)


def _dangling(schema: JSON) -> Iterator[tuple[Location, str]]:
    """Yield the references of a schema that lead nowhere. One that renames itself by ``$id`` is believed."""
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resolver = REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema))
    for location, part in _subschemas(schema, ()):
        reference = part.get("$ref")
        if location and "$id" in part:
            return
        if isinstance(reference, str):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                yield (*location, "$ref"), f"refers to {reference!r}, which is not part of the schema"


_SCHEMA_IN = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_SCHEMA_IN_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_SCHEMAS_IN_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS_IN_MAP = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def _subschemas(schema: JSON, location: Location) -> Iterator[tuple[Location, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return
    yield location, schema
    for keyword, value in schema.items():
        if keyword in (*_SCHEMA_IN, *_SCHEMA_IN_UNEVALUATED):
            yield from _subschemas(value, (*location, keyword))
        elif keyword in _SCHEMAS_IN_LIST and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _subschemas(part, (*location, keyword, index))
        elif keyword in _SCHEMAS_IN_MAP and isinstance(value, dict):
            for name, part in value.items():
                yield from _subschemas(part, (*location, keyword, name))


# -- telling an error: own words, so that a run replays to the same failure whatever validator is installed -----------


def _told(errors: "Iterable[ValidationError]") -> list[Violation]:
    told = {
        (
            _pointer(error.absolute_path),
            _pointer(error.absolute_schema_path),
        ): Violation(
            _pointer(error.absolute_schema_path), _pointer(error.absolute_path), error.instance, _message(error)
        )
        for error in errors
    }
    return [told[key] for key in sorted(told)][:VIOLATIONS_LISTED_MAX]


def _message(error: "ValidationError") -> str:
    value: Any = error.instance
    wanted: Any = error.validator_value
    keyword: Any = error.validator
    match keyword:
        case "type":
            return f"is {kind_of(value)}, expected {' or '.join([wanted] if isinstance(wanted, str) else wanted)}"
        case "required":
            missing = [name for name in wanted if name not in value]
            return f"lacks {', '.join(map(repr, missing))}"
        case "additionalProperties" | "unevaluatedProperties" if wanted is False:
            from callboard.languages.json_keywords import undeclared

            extra = sorted(undeclared(value, error.schema))
            return f"has {', '.join(map(repr, extra))}, which nothing declares"
        case "enum":
            return f"is none of {_short(wanted)}"
        case "format":
            return f"is no {wanted}"
        case "not":
            return f"is excluded by {_short(wanted)}"
        case "anyOf":
            return "fits none of the alternatives"
        case "oneOf":
            return "fits none of the alternatives, or more than one"
        case None:
            return "nothing is allowed here"
        case _:
            return f"violates {keyword} {_short(wanted)}"


def _short(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _pointer(steps: Iterable[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
