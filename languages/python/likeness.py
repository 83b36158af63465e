"""Likeness: when a request of edited code counts as the recorded one, although its JSON differs.

A field with a default that is added to a type does not change what a recorded value of the type means. So a value is
compared as the code of today reads it: the recorded JSON is converted to the type and back.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from callboard.languages.language import Alike
from callboard.languages.python.values import Codec, NoJsonForm, Parameters, codec
from callboard.lib.json_types import JSON


def values_alike(of: Codec, recorded: JSON, requested: JSON) -> bool:
    """Return whether two values of a type differ only by fields that have their default in one of them."""
    if recorded == requested:
        return True
    try:
        read = of.encode(of.decode(recorded))
    except (ValueError, TypeError):
        return False
    # Reading drops members that the type does not have, which must not have had a value.
    return read == requested and _members(recorded) <= _members(requested)


def _members(value: JSON) -> Counter[str]:
    """Return how often each member occurs in a value, at any depth, without those that are null."""
    found: Counter[str] = Counter()
    left: list[JSON] = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            found.update(name for name, member in one.items() if member is not None)
            left += one.values()
        elif isinstance(one, list):
            left += one
    return found


def arguments_alike(parameters: Parameters, recorded: Any, requested: Any) -> bool:
    """Return whether the arguments of two calls differ only by defaults."""
    if not isinstance(recorded, dict) or not isinstance(requested, dict):
        return recorded == requested
    names: set[str] = {*recorded, *requested}
    return all(
        values_alike(parameters.codecs[name], recorded[name], requested[name])
        if name in recorded and name in requested and name in parameters.codecs
        else _is_default(parameters, name, recorded.get(name, requested.get(name)))
        for name in names
    )


def _is_default(parameters: Parameters, name: str, value: JSON) -> bool:
    """Return whether an argument that only one of two calls has is the default of its parameter. One without a
    parameter was removed, and has to be null."""
    one = parameters.signature.parameters.get(name)
    if one is None:
        return value is None
    if one.default is one.empty:
        return False
    try:
        return parameters.codecs[name].encode(one.default) == value
    except (ValueError, TypeError):
        return False


def alike_in_arguments(parameters: Parameters) -> Alike:
    """Return how the requests for calls of a step are compared."""

    def alike(recorded: Any, requested: Any) -> bool:
        rest, arguments = _split_arguments(recorded)
        rest_now, arguments_now = _split_arguments(requested)
        return rest == rest_now and arguments_alike(parameters, arguments, arguments_now)

    return alike


def alike_in_input(parameters: Parameters) -> Alike:
    """Return how the starts of child runs are compared that perform a workflow with these parameters."""
    if parameters.whole is not None:
        return alike_in_type(parameters.codecs[parameters.whole], "input")

    def alike(recorded: Any, requested: Any) -> bool:
        rest, given = _split(recorded, ("input",))
        rest_now, given_now = _split(requested, ("input",))
        return rest == rest_now and arguments_alike(parameters, given, given_now)

    return alike


def _split_arguments(payload: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the payload of an effect or of a call of a tool without the arguments, and the arguments."""
    rest = {name: value for name, value in payload.items() if name != "digest"}
    request = rest.get("request")
    if isinstance(request, dict) and "arguments" in request:
        held: dict[str, Any] = {**request}
        arguments = held.pop("arguments")
        return {**rest, "request": held}, arguments
    return rest, rest.pop("input", None)


def alike_in_value(value: Any, *place: str) -> Alike | None:
    """Return how requests are compared that have a value at this place; None if the type of the value says nothing."""
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return None
    try:
        return alike_in_type(codec(type(value)), *place)
    except NoJsonForm:
        return None


def alike_in_type(of: Codec, *place: str) -> Alike:
    """Return how requests are compared that have a value of a type at this place."""

    def alike(recorded: Any, requested: Any) -> bool:
        rest, value = _split(recorded, place)
        rest_now, value_now = _split(requested, place)
        return rest == rest_now and values_alike(of, value, value_now)

    return alike


def _split(payload: Any, place: tuple[str, ...]) -> tuple[Any, Any]:
    """Return a payload without the member at a place, and that member."""
    if not place:
        return None, payload
    if not isinstance(payload, dict):
        return payload, None
    name, *below = place
    rest, found = _split(payload.get(name), tuple(below))
    return {**payload, name: rest}, found


def turns_alike(recorded: Any, requested: Any) -> bool:
    """Return whether two model turns differ only by optional members of the types of the answer and of tools' inputs.

    The digest is over all that the requests have, in this turn and the turns before.
    """
    compared = ("digest", "schema", "tools")
    rest = [{name: value for name, value in one.items() if name not in compared} for one in (recorded, requested)]
    tools, tools_now = recorded.get("tools") or [], requested.get("tools") or []
    return (
        rest[0] == rest[1]
        and _schemas_alike(recorded.get("schema"), requested.get("schema"))
        and len(tools) == len(tools_now)
        and all(
            {**one, "input_schema": None} == {**now, "input_schema": None}
            and _schemas_alike(one.get("input_schema"), now.get("input_schema"))
            for one, now in zip(tools, tools_now, strict=True)
        )
    )


def _schemas_alike(one: Any, other: Any) -> bool:
    """Return whether two JSON Schemas differ only by properties that are not required."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(_schemas_alike(*pair) for pair in zip(one, other, strict=True))
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one == other
    return all(_COMPARED.get(name, _schemas_alike)(one.get(name), other.get(name)) for name in {*one, *other})


def _shared_alike(one: Any, other: Any) -> bool:
    """Compare the properties or the definitions that both schemas have. Required properties are compared by name."""
    some, others = one or {}, other or {}
    return all(_schemas_alike(some[name], others[name]) for name in some.keys() & others.keys())


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {"properties": _shared_alike, "$defs": _shared_alike}
