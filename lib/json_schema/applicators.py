"""The keywords that apply schemas: to the value itself, to its members or to its items.

``unevaluatedProperties`` and ``unevaluatedItems`` are for parts that no other keyword has evaluated. The evaluated
parts are computed again for each of these keywords, from all schemas that apply to the same value.
"""

from collections.abc import Callable, Iterator
from typing import Any

from callboard.lib.json_schema.application import Application, Check, Way
from callboard.lib.json_schema.assertions import NAMES_PER_STEP
from callboard.lib.json_types import JSON

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Seen = Callable[[Application, Any, Any], "set[Any] | frozenset[Any]"]
"""Returns the names or numbers of the parts of a value that a schema evaluates, without its inner schemas."""


def unevaluated_properties(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not isinstance(value, dict):
        return
    seen = _find_seen(app, schema, value, _members)
    unseen = [name for name in value if name not in seen and not app.fits(wanted, value[name])]
    if unseen:
        app.add_violation("unevaluatedProperties", wanted, value, schema, place, at, *unseen)


def unevaluated_items(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, list):
        seen = _find_seen(app, schema, value, _items)
        if any(index not in seen and not app.fits(wanted, item) for index, item in enumerate(value)):
            app.add_violation("unevaluatedItems", wanted, value, schema, place, at)


def _find_seen(app: Application, schema: Any, value: Any, of: Seen) -> set[Any]:
    """Return the parts of a value that a schema evaluates, with its inner schemas for the same value."""
    if isinstance(schema, bool):
        return set()
    app.steps.take(1 + len(schema) + len(value))
    seen = set(of(app, schema, value))
    for keyword in REFERENCES:
        if keyword in schema and keyword in app.dialect.checks:
            with app.enter_reference(keyword, schema[keyword]) as inner, app.deeper():
                seen |= _find_seen(app, inner, value, of)
    for inner in _find_applied(app, value, schema):
        with app.deeper():
            seen |= _find_seen(app, inner, value, of)
    return seen


def _find_applied(app: Application, value: Any, schema: Any) -> Iterator[Any]:
    """Yield the inner schemas that apply to the same value."""
    if isinstance(value, dict):
        yield from (inner for name, inner in schema.get("dependentSchemas", {}).items() if name in value)
    for keyword in ("allOf", "oneOf", "anyOf"):
        yield from (inner for inner in schema.get(keyword, ()) if app.fits(inner, value))
    if "if" in schema:
        if app.fits(schema["if"], value):
            yield schema["if"]
            yield schema.get("then", True)
        else:
            yield schema.get("else", True)


def _members(app: Application, schema: Any, value: dict[str, Any]) -> set[str]:
    seen: set[str] = schema.get("properties", {}).keys() & value.keys()
    for pattern in schema.get("patternProperties", ()):
        seen |= {name for name in value if app.patterns.found(pattern, name)}
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            seen |= {name for name, member in value.items() if app.fits(schema[keyword], member)}
    return seen


def _items(app: Application, schema: Any, value: list[Any]) -> set[int]:
    seen: set[int] = set()
    items = schema.get("items")
    if isinstance(items, list) and "additionalItems" not in schema:
        seen.update(range(len(items)))
    elif "items" in schema:
        seen.update(range(len(value)))
    seen.update(range(len(schema.get("prefixItems", ()))))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            seen |= {index for index, item in enumerate(value) if app.fits(schema[keyword], item)}
    return seen


# -- to the value itself -----------------------------------------------------------------------------------------------


def all_of(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    for index, inner in enumerate(wanted):
        app.apply(inner, value, place, ((at, "allOf"), index))


def any_of(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not any(app.fits(inner, value) for inner in wanted):
        app.add_violation("anyOf", wanted, value, schema, place, at)


def one_of(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if sum(app.fits(inner, value) for inner in wanted) != 1:
        app.add_violation("oneOf", wanted, value, schema, place, at)


def not_(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if app.fits(wanted, value):
        app.add_violation("not", wanted, value, schema, place, at)


def if_(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    branch = "then" if app.fits(wanted, value) else "else"
    if branch in schema:
        app.apply(schema[branch], value, place, (at, branch))


def dependent_schemas(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, dict):
        app.steps.take(len(wanted) // NAMES_PER_STEP)
        for name, inner in wanted.items():
            if name in value:
                app.apply(inner, value, place, ((at, "dependentSchemas"), name))


def referring(keyword: str) -> Check:
    """Return the check of a keyword that applies the target of a reference."""

    def check(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
        with app.enter_reference(keyword, wanted) as inner:
            app.apply(inner, value, place, (at, keyword))

    return check


# -- to members --------------------------------------------------------------------------------------------------------


def properties(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, dict):
        if len(wanted) > NAMES_PER_STEP:
            app.steps.take(len(wanted) // NAMES_PER_STEP)
        below = at, "properties"
        for name, inner in wanted.items():
            if name in value:
                app.apply(inner, value[name], (place, name), (below, name))


def pattern_properties(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, dict):
        for pattern, inner in wanted.items():
            for name, member in value.items():
                if app.patterns.found(pattern, name):
                    app.apply(inner, member, (place, name), ((at, "patternProperties"), pattern))


def additional_properties(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not isinstance(value, dict):
        return
    extra = _find_undeclared(app, value, schema)
    if isinstance(wanted, dict):
        for name in extra:
            app.apply(wanted, value[name], (place, name), (at, "additionalProperties"))
    elif not wanted and extra:
        app.add_violation("additionalProperties", wanted, value, schema, place, at, *extra)


def _find_undeclared(app: Application, value: dict[str, Any], schema: Any) -> list[str]:
    """Return, in order, the members that neither ``properties`` nor ``patternProperties`` declare."""
    declared: Any = schema.get("properties", {})
    by_pattern: Any = schema.get("patternProperties", {})
    app.steps.take(1 + len(value) // NAMES_PER_STEP)
    unknown = [name for name in value if name not in declared]
    return [name for name in unknown if not any(app.patterns.found(pattern, name) for pattern in by_pattern)]


def property_names(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, dict):
        for name in value:
            app.apply(wanted, name, place, (at, "propertyNames"))


# -- to items ----------------------------------------------------------------------------------------------------------


def prefix_items(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, list):
        for index, (item, inner) in enumerate(zip(value, wanted, strict=False)):
            app.apply(inner, item, (place, index), ((at, "prefixItems"), index))


def items(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check the items after those of ``prefixItems``."""
    if not isinstance(value, list):
        return
    first = len(schema.get("prefixItems", ()))
    if wanted is False and len(value) > first:
        app.add_violation("items", wanted, value, schema, place, at)
    elif wanted is not False:
        for index in range(first, len(value)):
            app.apply(wanted, value[index], (place, index), (at, "items"))


def items_before_2020(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check items against one schema for all, or against an array of schemas for the first ones."""
    if not isinstance(value, list):
        return
    if isinstance(wanted, list):
        for index, (item, inner) in enumerate(zip(value, wanted, strict=False)):
            app.apply(inner, item, (place, index), ((at, "items"), index))
    else:
        for index, item in enumerate(value):
            app.apply(wanted, item, (place, index), (at, "items"))


def additional_items(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check the items after those of an ``items`` array."""
    first = schema.get("items", True)
    if not isinstance(value, list) or not isinstance(first, list):
        return
    if isinstance(wanted, dict):
        for index in range(len(first), len(value)):
            app.apply(wanted, value[index], (place, index), (at, "additionalItems"))
    elif not wanted and len(value) > len(first):
        app.add_violation("additionalItems", wanted, value, schema, place, at)


def contains(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not isinstance(value, list):
        return
    least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
    count = 0
    for item in value:
        count += app.fits(wanted, item)
        if count > most:
            app.add_violation("maxContains", most, value, schema, place, at)
            return
    if count < least:
        app.add_violation("minContains" if count else "contains", least if count else wanted, value, schema, place, at)


def contains_any(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    """Check ``contains`` in versions without ``minContains`` and ``maxContains``."""
    if isinstance(value, list) and not any(app.fits(wanted, item) for item in value):
        app.add_violation("contains", wanted, value, schema, place, at)
