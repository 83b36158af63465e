"""JSON Schema's keywords that match regular expressions, within a bound: Python's `re` can be held up for good.

``jsonschema`` has them on `re`, where ``^(a+)+$`` takes twice as long with every character more. Here they are on
`schema_patterns`; apart from that these say what ``jsonschema``'s own say.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing.jsonschema import lookup_recursive_ref

from callboard.bus.schemas import check_stack, followable
from callboard.languages import schema_patterns

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


@cache
def bounded(validator: "type[Validator]") -> "type[Validator]":
    """Return a validator class of ``jsonschema`` with its patterns matched within a bound.

    It raises `callboard.languages.patterns.BadPattern` when it comes to a pattern that cannot be matched, and
    `RecursionError` when references do not end.
    """
    known: Any = validator.VALIDATORS
    checked: Any = extend(followable(validator), {name: check for name, check in _KEYWORDS.items() if name in known})
    # A subschema that names a `$schema` would be handed to that version's own class, and so back to `re`.
    checked.evolve = attrs.evolve
    return checked


def undeclared(value: dict[str, Any], schema: Any) -> list[str]:
    """Return the members that neither ``properties`` nor ``patternProperties`` of a schema know, in their order."""
    declared: Any = schema.get("properties", {}) if isinstance(schema, dict) else {}
    by_pattern: Any = schema.get("patternProperties", {}) if isinstance(schema, dict) else {}
    unknown = [name for name in value if name not in declared]
    return [name for name in unknown if not any(schema_patterns.found(pattern, name) for pattern in by_pattern)]


# -- the keywords, called by jsonschema with the validator, the keyword's value, the instance and the schema ----------


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not schema_patterns.found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, by_pattern: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, below in by_pattern.items():
        for name, member in instance.items():
            if schema_patterns.found(pattern, name):
                yield from validator.descend(member, below, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    extra = undeclared(instance, schema)
    if validator.is_type(allowed, "object"):
        for name in extra:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extra:
        yield _unexpected("Additional", extra)


def _unevaluated_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    evaluated = set(_evaluated(validator, instance, schema))
    left = [name for name in instance if name not in evaluated]
    offending = [name for name in left if _offends(validator, instance[name], allowed)]
    if offending:
        yield _unexpected("Unevaluated", offending)


def _evaluated(validator: Any, instance: Any, schema: Any) -> Iterator[str]:
    """Yield the members of an object that a schema, and the subschemas that it fits, say something about."""
    if isinstance(schema, bool):
        return
    for resolved in _referred(validator, schema):
        inside = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
        yield from _evaluated(inside, instance, resolved.contents)
    yield from schema.get("properties", {}).keys() & instance.keys()
    for pattern in schema.get("patternProperties", {}):
        yield from (name for name in instance if schema_patterns.found(pattern, name))
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            below = schema[keyword]
            yield from (name for name, member in instance.items() if not _offends(validator, member, below))
    for applied in _applied(validator, instance, schema):
        yield from _evaluated(validator, instance, applied)


def _referred(validator: Any, schema: Any) -> Iterator[Any]:
    check_stack()
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            yield validator._resolver.lookup(schema[keyword])
    if "$recursiveRef" in schema:
        yield lookup_recursive_ref(validator._resolver)


def _applied(validator: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Yield the subschemas for the same object that are in force."""
    yield from (below for name, below in schema.get("dependentSchemas", {}).items() if name in instance)
    for keyword in ("allOf", "oneOf", "anyOf"):
        yield from (below for below in schema.get(keyword, []) if not _offends(validator, instance, below))
    if "if" in schema:
        if not _offends(validator, instance, schema["if"]):
            yield schema["if"]
            yield schema.get("then", True)
        else:
            yield schema.get("else", True)


def _offends(validator: Any, instance: Any, schema: Any) -> bool:
    return next(iter(validator.descend(instance, schema)), None) is not None


def _unexpected(which: str, names: Iterable[str]) -> ValidationError:
    listed = sorted(names)
    told = f"{', '.join(map(repr, listed))} {'was' if len(listed) == 1 else 'were'} unexpected"
    return ValidationError(f"{which} properties are not allowed ({told})")


_KEYWORDS = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
}
