"""Values of graphs as JSON in the log.

Plain values are as they are, messages have LangChain's own form, the rest that of LangGraph's serializer. Exceptions
have their type and arguments.
"""

from base64 import b64decode, b64encode
from typing import Any

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, PutOp, SearchItem, SearchOp

from callboard.languages.python import raised
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON
from callboard.lib.set_order import sort_json
from callboard.lib.text import without_addresses

TAG = "$langgraph"
"""The member that says of an object that it is the form of another value."""

_SERIALIZER = JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=True)
_OPERATIONS: dict[str, Any] = {
    one.__name__: one for one in (GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp, Item, SearchItem)
}


def encode(value: Any) -> JSON:
    """Return the JSON of a value.

    :raises TypeError: if neither JSON, LangChain nor LangGraph has a form for it
    :raises ValueError: if it contains a number that JSON cannot represent
    """
    kind = type(value)
    if value is None or kind in (bool, str, int, float):
        return plain_json(value)
    if kind is list:
        return [encode(one) for one in value]
    if kind is tuple:
        return {TAG: "tuple", "value": [encode(one) for one in value]}
    if kind in (set, frozenset):
        elements: list[Any] = [encode(one) for one in value]
        return {TAG: kind.__name__, "value": sort_json(elements)}
    if kind is dict and TAG not in value and all(type(key) is str for key in value):
        return {key: encode(one) for key, one in value.items()}
    if isinstance(value, BaseMessage):
        return {TAG: "message", "value": encode(message_to_dict(value))}
    if kind.__name__ in _OPERATIONS and kind is _OPERATIONS[kind.__name__]:
        return {TAG: kind.__name__, "value": encode(_members(value))}
    try:
        form, data = _SERIALIZER.dumps_typed(value)
    except Exception as error:
        raise TypeError(f"objects of type {kind.__name__} have no form in the log: {error}") from error
    return {TAG: form, "type": f"{kind.__module__}.{kind.__qualname__}", "value": b64encode(data).decode()}


def decode(value: JSON) -> Any:
    """Return the value of JSON that `encode` has made."""
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    form = value.get(TAG)
    if form is None:
        return {key: decode(one) for key, one in value.items()}
    held = value["value"]
    if form == "tuple":
        return tuple(decode(held))
    if form in ("set", "frozenset"):
        elements: list[Any] = decode(held)
        return set(elements) if form == "set" else frozenset(elements)
    if form == "message":
        return messages_from_dict([decode(held)])[0]
    if form in _OPERATIONS:
        return _OPERATIONS[str(form)](**decode(held))
    return _SERIALIZER.loads_typed((str(form), b64decode(str(held))))


def _members(value: Any) -> dict[str, Any]:
    if not isinstance(value, Item):
        return value._asdict()
    names = [*Item.__slots__, *(("score",) if isinstance(value, SearchItem) else ())]
    members = {name: getattr(value, name) for name in names}
    return {**members, "created_at": members["created_at"].isoformat(), "updated_at": members["updated_at"].isoformat()}


def show_value(value: Any) -> JSON:
    """Return JSON that shows people a value; what has no form in JSON is shown as text."""
    try:
        return plain_json(value)
    except (TypeError, ValueError):
        if isinstance(value, dict):
            return {str(key): show_value(one) for key, one in value.items()}  # pyright: ignore
        if isinstance(value, list | tuple):
            return [show_value(one) for one in value]  # pyright: ignore
        return without_addresses(str(value))


def encode_error(error: Exception) -> JSON:
    """Return the JSON of an exception; None if it could not be made again."""
    return raised.encode_error(error, encode, decode)


def decode_error(noted: Any) -> Exception | None:
    """Make an exception of its JSON; None without JSON, or if its type is not loaded here."""
    return raised.decode_error(noted, decode)
