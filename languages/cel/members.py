"""Reading the members of lists and maps. Here an int that was read from data becomes a double."""

from collections.abc import Sequence
from difflib import get_close_matches
from enum import Enum
from itertools import islice

from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.values import (
    LISTS,
    MAPS,
    NUMBERS,
    CelList,
    CelMap,
    UInt,
    Value,
    double_of,
    kind,
)

KEYS_LISTED_MAX = 8
"""The greatest number of keys that an error about a missing key lists."""

KEYS_COMPARED_MAX = 200
KEY_COMPARED_CHARS_MAX = 60
"""How many keys are compared with a missing one, and how long keys may be, in characters."""


class BoolKey(Enum):
    """A boolean as a map's key, because in a Python dict True is the same key as 1."""

    FALSE = False
    TRUE = True


def stored_key(key: Value) -> Value:
    """Return a key in the form that `CelMap` stores.

    :raises EvaluationError: if values of this kind cannot be keys
    """
    kept = type(key)
    if kept is str or kept is int or kept is UInt:
        return key
    if kept is bool:
        return BoolKey(key)
    raise EvaluationError(f"a map's key is a string, an int, a uint or a bool, not {key_kind(key)}")


def key_value(stored: Value) -> Value:
    """Return a stored key as a CEL value."""
    return stored.value if type(stored) is BoolKey else stored


def key_kind(value: Value) -> str:
    """Return the name of a value's kind with its article."""
    name = kind(value)
    return name if name in ("null", "bytes") else f"an {name}" if name == "int" else f"a {name}"


def items_of(value: list[Value]) -> list[Value]:
    """Return a list's items as CEL values."""
    if type(value) is CelList:
        return value
    return [double_of(item) if type(item) is int else item for item in value]


def keys_of(value: dict[Value, Value]) -> list[Value]:
    """Return a map's keys as CEL values."""
    return [key_value(key) for key in value] if type(value) is CelMap else list(value)


def select(value: Value, field: str) -> Value:
    """Return ``value.field``.

    :raises EvaluationError: if the value is not a map or has no such member
    """
    if type(value) not in MAPS:
        raise EvaluationError(f"cannot read {field!r} of {key_kind(value)}: only a map has members")
    try:
        member = value[field]
    except KeyError:
        raise no_such_key(value, field) from None
    return double_of(member) if type(member) is int and type(value) is dict else member


def has(value: Value, field: str) -> bool:
    """Return whether ``value.field`` exists.

    :raises EvaluationError: if the value is not a map
    """
    if type(value) not in MAPS:
        raise EvaluationError(f"cannot look for {field!r} in {key_kind(value)}: only a map has members")
    return field in value


def index(value: Value, at: Value) -> Value:
    """Return ``value[at]``.

    :raises EvaluationError: if the member does not exist, or the value cannot be indexed by ``at``
    """
    if type(value) in LISTS:
        member = value[_position(at, value)]
        return double_of(member) if type(member) is int and type(value) is list else member
    if type(value) in MAPS:
        try:
            member = value[_sought_key(at)]
        except KeyError:
            raise no_such_key(value, at) from None
        return double_of(member) if type(member) is int and type(value) is dict else member
    raise EvaluationError(f"cannot index {key_kind(value)}: only lists and maps have members")


def _position(at: Value, items: Sequence[Value]) -> int:
    if type(at) not in NUMBERS:
        raise EvaluationError(f"a list is indexed by a whole number, not by {key_kind(at)}")
    if type(at) is float and not at.is_integer():
        raise EvaluationError(f"a list is indexed by a whole number, not by {at}")
    if not 0 <= at < len(items):
        raise EvaluationError(f"index {int(at)} is outside of a list of {len(items)}")
    return int(at)


def _sought_key(key: Value) -> Value:
    return key if type(key) is float else stored_key(key)


def contains_key(value: dict[Value, Value], key: Value) -> bool:
    """Return whether a map has a key. Equal numbers of different kinds are the same key."""
    return _sought_key(key) in value


def no_such_key(value: dict[Value, Value], key: Value) -> EvaluationError:
    """Return the error of a missing key."""
    return EvaluationError(lambda: f"no such key: {show_value(key)} ({_keys_hint(value, key)})")


def _keys_hint(value: dict[Value, Value], key: Value) -> str:
    if not value:
        return "the map is empty"
    known = [str(key_value(stored)) for stored in islice(value, KEYS_COMPARED_MAX)]
    short = [name for name in known if len(name) <= KEY_COMPARED_CHARS_MAX]
    sought = str(key)
    if len(sought) <= KEY_COMPARED_CHARS_MAX and (meant := get_close_matches(sought, short, n=1, cutoff=0.75)):
        return f"did you mean {show_value(meant[0])}?"
    listed = ", ".join(show_value(name)[1:-1] for name in sorted(known)[:KEYS_LISTED_MAX])
    return f"there are: {listed}, …" if len(value) > KEYS_LISTED_MAX else f"there are: {listed}"
