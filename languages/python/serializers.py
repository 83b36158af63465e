"""Serializers of pydantic types that write sets in one order, so that equal values have equal text in every process."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from callboard.languages.python.loop import current_loop
from callboard.languages.python.rules import SETS_HAVE_AN_ORDER
from callboard.lib.set_order import sort_json, write_sets_in_order

_SET_LIKE = frozenset({"set", "frozenset", "generator"})
"""Types of schemas of which a value may be a set. That of an ``Iterable`` is called generator."""

_WITHOUT_SCHEMAS = frozenset({"metadata", "default", "config", "cls", "expected", "keys_schema"})
"""Members of a schema that are no schemas of values."""


def orders_sets() -> bool:
    """Return whether sets are written in their order: in all runs except those that began before there was one."""
    loop = current_loop()
    return loop is None or loop.rules >= SETS_HAVE_AN_ORDER


def find_serializer(schema: Any, dump: Callable[[Any], Any]) -> Any:
    """Return a serializer of a core schema that writes sets in order; None if its values contain no sets.

    ``dump`` converts pydantic models within values of any type.
    """
    if not isinstance(schema, Mapping):
        return None  # not complete, since a class that it refers to is not defined yet
    changed = _Rewriting(dump).rewrite(schema)
    if changed is schema:
        return None
    from pydantic_core import SchemaSerializer

    make: Any = SchemaSerializer
    try:
        # Without this, the serializers of classes within are used as they were made with their classes.
        return make(changed, None, _use_prebuilt=False)
    except TypeError:
        return make(changed)


class _Rewriting:
    """Rewrites core schemas: sets, and whatever may be one, get a function that orders their elements."""

    def __init__(self, dump: Callable[[Any], Any]) -> None:
        def write_any(value: Any) -> Any:
            return write_sets_in_order(value, dump) if orders_sets() else value

        self._any = {"type": "function-plain", "function": write_any}
        self._anything = {"type": "any", "serialization": self._any}

    def rewrite(self, node: Any, place: str = "", extra: str = "") -> Any:
        """Return a schema, or a part of one at the member ``place`` of another; one without sets as it is.

        ``extra`` is what the configuration around it says of fields that are not declared.
        """
        if isinstance(node, list | tuple):
            items: list[Any] = [self.rewrite(one, extra=extra) for one in node]  # pyright: ignore[reportUnknownVariableType]
            return node if _same(items, node) else type(node)(items)  # pyright: ignore
        if not isinstance(node, dict):
            return node
        kind = node.get("type")
        if place == "serialization" and kind == "any":
            return self._any
        is_schema = isinstance(kind, str)
        if is_schema:
            extra = node.get("extra_behavior") or (node.get("config") or {}).get("extra_fields_behavior") or extra
        found: dict[str, Any] = {
            name: one if is_schema and name in _WITHOUT_SCHEMAS else self.rewrite(one, name, extra)
            for name, one in node.items()
        }
        if is_schema:
            found |= self._added(str(kind), place, found, extra)
        return node if len(found) == len(node) and _same(found.values(), node.values()) else found

    def _added(self, kind: str, place: str, schema: dict[str, Any], extra: str) -> dict[str, Any]:
        """Return the members that a schema needs in addition."""
        if place == "serialization":
            returns_any = kind in ("function-plain", "function-wrap") and schema.get("return_schema") is None
            return {"return_schema": self._anything} if returns_any else {}
        if kind in ("model-fields", "typed-dict"):
            adds = extra == "allow" and schema.get("extras_schema") is None
            return {"extras_schema": self._anything} if adds else {}
        if "serialization" in schema:
            return {}
        if kind == "any":
            return {"serialization": self._any}
        return {"serialization": _SORTED} if kind in _SET_LIKE else {}


def _same(some: Any, others: Any) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _sort(value: Any, write: Callable[[Any], Any]) -> Any:
    found = write(value)
    is_set = isinstance(value, set | frozenset) and isinstance(found, list)
    return sort_json(found) if is_set and orders_sets() else found


_SORTED = {"type": "function-wrap", "function": _sort}


@lru_cache(1024)
def serializer_of(model: type, dump: Callable[[Any], Any]) -> Any:
    """Return such a serializer of a pydantic model; None if its values contain no sets, or if it has a ``model_dump``
    of its own."""
    from pydantic import BaseModel

    if not issubclass(model, BaseModel) or model.model_dump is not BaseModel.model_dump:
        return None
    return find_serializer(model.__pydantic_core_schema__, dump)
