"""The order of sets in values: equal values have equal JSON in every process.

The order in which Python iterates over a set depends on hashes, and those of texts differ between processes. So sets
are written in the order of their elements: numbers by value, then all else by its JSON.
"""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import fields as dataclass_fields
from typing import Any

import msgspec

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import encode_json

_PLAIN = frozenset({str, int, float, bool, type(None), bytes})
"""Types of values that contain no others."""

SETS = (set, frozenset)

EncodeHook = Callable[[Any], Any]


def sort_json(elements: list[JSON]) -> list[JSON]:
    """Return the elements of a set, which have been converted to JSON, in their order."""
    return sorted(elements, key=_key)


def _key(element: JSON) -> tuple[int, float, bytes]:
    if isinstance(element, int | float) and not isinstance(element, bool):
        return 0, element, b""
    return 1, 0, msgspec.json.encode(element)


def contains(value: Any, types: tuple[type, ...]) -> bool:
    """Return whether a value contains one of these types, in containers or in objects with fields at any depth."""
    left, seen, plain = [value], set[int](), _PLAIN.difference(types)
    while left:
        one = left.pop()
        if isinstance(one, types):
            return True
        members: Any = _members(one)
        # In this way members without others within, which are the most, are passed over in C.
        if plain.issuperset(map(type, members)):
            continue
        if id(one) not in seen:
            seen.add(id(one))
            left += [member for member in members if type(member) not in plain]
    return False


def write_sets_in_order(value: Any, enc_hook: EncodeHook | None = None) -> Any:
    """Return a value whose sets are replaced by sorted lists of JSON; a value without sets is returned unchanged.

    Objects with such fields are copied, except pydantic models, which ``enc_hook`` has to convert.
    """
    return _replace(value, enc_hook) if contains(value, SETS) else value


def _replace(value: Any, enc_hook: EncodeHook | None) -> Any:
    if type(value) in _PLAIN or not contains(value, SETS):
        return value
    match value:
        case set() | frozenset():
            found: Any = [decode_json(encode_json(_replace(one, enc_hook), enc_hook)) for one in value]
            return sort_json(found)
        case dict():
            return {key: _replace(member, enc_hook) for key, member in value.items()}
        case list() | tuple():
            return [_replace(member, enc_hook) for member in value]
        case _ if _is_model(value):
            return enc_hook(value) if enc_hook is not None else value
        case _:
            return copy_with(value, {name: _replace(one, enc_hook) for name, one in fields_of(value)})


def copy_with(value: Any, fields: dict[str, Any]) -> Any:
    """Return a copy of an object with other values of its fields."""
    if not fields:
        return value
    copied = copy(value)
    write = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
    for name, one in fields.items():
        write(copied, name, one)
    return copied


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else [one for _name, one in fields_of(value)]


def fields_of(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the fields of a struct, of a dataclass, of an object of attrs or of a pydantic model."""
    if isinstance(value, type):
        return ()
    cls: Any = type(value)
    if issubclass(cls, msgspec.Struct):
        names: Iterable[str] = cls.__struct_fields__
    elif hasattr(cls, "__dataclass_fields__"):
        names = [one.name for one in dataclass_fields(cls)]
    elif hasattr(cls, "__attrs_attrs__"):
        names = [one.name for one in cls.__attrs_attrs__]
    elif _is_model(value):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}.items()
    else:
        return ()
    return ((name, getattr(value, name)) for name in names if hasattr(value, name))


def _is_model(value: Any) -> bool:
    return hasattr(type(value), "__pydantic_serializer__") and hasattr(value, "model_dump")
