"""Serializers of pydantic types that write sets in one order, so that equal values have equal text in every process,
and bytes in base64, so that any bytes can be written."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from callboard.lib.json_types import JSON
from callboard.lib.set_order import contains, copy_with, fields_of, sort_json, write_sets_in_order

_SET_LIKE = frozenset({"set", "frozenset", "generator"})
"""Types of schemas of which a value may be a set. That of an ``Iterable`` is called generator."""

_WITHOUT_SCHEMAS = frozenset({"metadata", "default", "config", "cls", "expected", "keys_schema"})
"""Members of a schema other than schemas of values."""


BYTES = "data:;base64,"
"""The beginning of the JSON of bytes, which their base64 follows. Any other text is that of the bytes in UTF-8."""


def has_bytes(schema: Any) -> bool:
    """Return whether values of a core schema may contain bytes."""
    if isinstance(schema, list | tuple):
        return any(has_bytes(one) for one in schema)  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, Mapping):
        return False
    members: Mapping[str, Any] = schema
    if members.get("type") == "bytes":
        return True
    return any(has_bytes(one) for name, one in members.items() if name not in _WITHOUT_SCHEMAS)


def mark_bytes(value: Any) -> Any:
    """Return a value of any type with texts of `BYTES` in place of bytes, at any depth outside of pydantic models."""
    return _mark(value) if contains(value, (bytes,)) else value


def _mark(value: Any) -> Any:
    match value:
        case bytes():
            return f"{BYTES}{b64encode(value).decode()}"
        case dict():
            return {key: _mark(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return type(value)(_mark(member) for member in value) if type(value) in _CONTAINERS else value
        case _ if hasattr(value, "model_dump") or not contains(value, (bytes,)):
            return value
        case _:
            return copy_with(value, {name: _mark(member) for name, member in fields_of(value)})


_CONTAINERS = (list, tuple, set, frozenset)


def read_bytes(value: JSON) -> Any:
    """Return the JSON of a type that has bytes, with these as bytes, at any depth.

    :raises ValueError: if the base64 of one is invalid
    """
    if isinstance(value, str) and value.startswith(BYTES):
        return b64decode(value[len(BYTES) :], validate=True)
    if isinstance(value, dict):
        return {name: read_bytes(one) for name, one in value.items()}
    return [read_bytes(one) for one in value] if isinstance(value, list) else value


def texts_of_bytes(value: JSON) -> list[str]:
    """Return the texts in a JSON value that are read as bytes, in order."""
    if isinstance(value, str):
        return [value] if value.startswith(BYTES) else []
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sorted(text for one in members for text in texts_of_bytes(one))


def find_serializer(schema: Any, dump: Callable[[Any], Any]) -> Any:
    """Return a serializer of a core schema that writes sets in order, and bytes in base64; None if its values contain
    neither.

    ``dump`` converts pydantic models within values of any type.
    """
    if not isinstance(schema, Mapping):
        return None  # not complete, since a class that it refers to is not defined yet
    changed = _Rewriting(dump).rewrite(schema)
    if changed is schema:
        return None
    from pydantic import TypeAdapter

    make: Any = type(TypeAdapter(Any).serializer)
    try:
        # Without this, the serializers of classes within are used as they were made with their classes.
        return make(changed, None, _use_prebuilt=False)
    except TypeError:
        return make(changed)


class _Rewriting:
    """Rewrites core schemas: sets, and whatever may be one, get a function that orders their elements."""

    def __init__(self, dump: Callable[[Any], Any]) -> None:
        def write_any(value: Any) -> Any:
            return write_sets_in_order(value, dump)

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
            found |= self._extra_members(str(kind), place, found, extra)
        return node if len(found) == len(node) and _same(found.values(), node.values()) else found

    def _extra_members(self, kind: str, place: str, schema: dict[str, Any], extra: str) -> dict[str, Any]:
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
        if kind == "bytes":
            return {"serialization": _IN_BASE64}
        return {"serialization": _SORTED} if kind in _SET_LIKE else {}


def _same(some: Any, others: Any) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _sort(value: Any, write: Callable[[Any], Any]) -> Any:
    found = write(value)
    is_set = isinstance(value, set | frozenset) and isinstance(found, list)
    return sort_json(found) if is_set else found


_SORTED = {"type": "function-wrap", "function": _sort}


def _write_bytes(value: Any, write: Callable[[Any], Any]) -> Any:
    return _mark(value) if isinstance(value, bytes) else write(value)


_IN_BASE64 = {"type": "function-wrap", "function": _write_bytes, "when_used": "json"}


@lru_cache(1024)
def serializer_of(model: type, dump: Callable[[Any], Any]) -> Any:
    """Return such a serializer of a pydantic model; None if its values contain no sets, or if it has a ``model_dump``
    of its own."""
    from pydantic import BaseModel

    if not issubclass(model, BaseModel) or model.model_dump is not BaseModel.model_dump:
        return None
    return find_serializer(model.__pydantic_core_schema__, dump)
