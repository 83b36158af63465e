"""The keywords for what no other one has looked at: ``unevaluatedProperties`` and ``unevaluatedItems``.

What has been looked at is found anew, through all schemas for the same value that are in force.
"""

from collections.abc import Callable, Iterator
from typing import Any

from callboard.bus.effects import JSON
from callboard.bus.schemas.application import Application, Way

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Seen = Callable[[Application, Any, Any], "set[Any] | frozenset[Any]"]
"""Returns the names or numbers of the parts of a value that a schema by itself looks at."""


def unevaluated_properties(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if not isinstance(value, dict):
        return
    seen = _seen(app, schema, value, _members)
    unseen = [name for name in value if name not in seen and not app.fits(wanted, value[name])]
    if unseen:
        app.violated("unevaluatedProperties", wanted, value, schema, place, at, *unseen)


def unevaluated_items(app: Application, wanted: Any, value: JSON, schema: Any, place: Way, at: Way) -> None:
    if isinstance(value, list):
        seen = _seen(app, schema, value, _items)
        if any(index not in seen and not app.fits(wanted, item) for index, item in enumerate(value)):
            app.violated("unevaluatedItems", wanted, value, schema, place, at)


def _seen(app: Application, schema: Any, value: Any, of: Seen) -> set[Any]:
    """Return the parts of a value that a schema, and those for the same value that it holds, look at."""
    if isinstance(schema, bool):
        return set()
    app.steps.take(1 + len(schema) + len(value))
    seen = set(of(app, schema, value))
    for keyword in REFERENCES:
        if keyword in schema and keyword in app.dialect.checks:
            with app.referred(keyword, schema[keyword]) as inner, app.deeper():
                seen |= _seen(app, inner, value, of)
    for inner in _applied(app, value, schema):
        with app.deeper():
            seen |= _seen(app, inner, value, of)
    return seen


def _applied(app: Application, value: Any, schema: Any) -> Iterator[Any]:
    """Yield the schemas for the same value that are in force."""
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
