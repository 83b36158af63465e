"""The keywords for parts that no other keyword has evaluated: ``unevaluatedProperties`` and ``unevaluatedItems``.

The evaluated parts are computed again for each of these keywords, from all schemas that apply to the same value.
"""

from collections.abc import Callable, Iterator
from typing import Any

from callboard.lib.json_schema.application import Application, Way
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
