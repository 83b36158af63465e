"""Values: the conversion of values between a workflow and the JSON in its log, by the annotations of the code.

Annotations are those of pydantic (models, dataclasses, TypedDicts, built-in types, and combinations of them) or of
msgspec. A value without an annotation is read back as plain JSON.
"""

import inspect
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from callboard.languages.python.serializers import (
    BYTES,
    find_serializer,
    has_bytes,
    mark_bytes,
    read_bytes,
    serializer_of,
    texts_of_bytes,
)
from callboard.lib.finite_json import NotFinite, encode_finite
from callboard.lib.foreign_errors import is_foreign
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON, JsonSchema
from callboard.lib.set_order import write_sets_in_order
from callboard.lib.text import encode_json


class NoJsonForm(TypeError):
    """A type has no form in JSON."""


class Codec(Struct, frozen=True):
    """The conversions of one type to and from JSON. Both raise ValueError or TypeError for a value that does not fit.
    ``schema`` is the JSON Schema of the type, empty if it accepts any value."""

    encode: Callable[[Any], JSON]
    decode: Callable[[JSON], Any]
    schema: JsonSchema


def plain_json(value: Any) -> JSON:
    """Return the JSON of a value of any type.

    :raises TypeError: if the value has no form in JSON
    :raises ValueError: if it contains a number that JSON cannot represent
    """
    if value is None or isinstance(value, str | bool):
        return value
    return _to_json(order_sets(mark_bytes(value)))


def order_sets(value: Any, fallback: Callable[[Any], Any] | None = None) -> Any:
    """Return a value with sorted lists in place of sets; ``fallback`` converts elements that have no form in JSON."""

    def dump(one: Any) -> Any:
        try:
            return _dump(one)
        except NoJsonForm:
            if fallback is None:
                raise
            return fallback(one)

    return write_sets_in_order(value, dump)


def _to_json(value: Any) -> JSON:
    try:
        return decode_json(encode_finite(value, _dump))
    except NotFinite as error:
        raise ValueError(f"{error} is not a number of JSON") from error


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise NoJsonForm(f"objects of type {type(value).__name__} have no form in JSON")
    serializer = serializer_of(type(value), _dump)
    if serializer is not None:
        return serializer.to_python(value, mode="json", by_alias=True)
    return dump(mode="json", by_alias=True)


_ANYTHING = Codec(plain_json, lambda value: value, {})


def codec(annotation: Any) -> Codec:
    """Return the codec of an annotation.

    :raises NoJsonForm: if the type has no form in JSON
    """
    if annotation in (Any, inspect.Parameter.empty, object):
        return _ANYTHING
    try:
        return _cached_codec(annotation)
    except TypeError as error:
        if isinstance(error, NoJsonForm):
            raise
        return _codec(annotation)  # not hashable


def _codec(annotation: Any) -> Codec:
    from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = adapter.json_schema(by_alias=True)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return _of_msgspec(annotation)

    serializer = find_serializer(adapter.core_schema, _dump)
    write = adapter.dump_python if serializer is None else serializer.to_python

    with_bytes = has_bytes(adapter.core_schema)

    def decode(value: JSON) -> Any:
        return adapter.validate_python(read_bytes(value) if with_bytes else value)

    def dump(value: Any) -> JSON:
        return _to_json(write(value, mode="json", by_alias=True, warnings="none"))

    def encode(value: Any) -> JSON:
        found = dump(value)
        again = decode(found)  # so that the recorded value can be read back
        if with_bytes and texts_of_bytes(found) != texts_of_bytes(dump(again)):
            raise ValueError(f"a text begins with {BYTES}, and would be read back as bytes")
        return found

    return Codec(_contain_errors(encode), _contain_errors(decode), schema)


_cached_codec = cache(_codec)


def _contain_errors(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a conversion that raises `ValueError` where code of a type, such as a validator, raises anything else.

    Values are also converted while a start is admitted. Then its sender gets the problem, and the worker continues.
    """

    def guarded(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError):
            raise
        except BaseException as error:
            if not is_foreign(error):
                raise
            raise ValueError(f"{type(error).__name__}: {error}") from error

    return guarded


def _of_msgspec(annotation: Any) -> Codec:
    try:
        schema = msgspec.json.schema(annotation)
    except (TypeError, RuntimeError) as error:
        named = getattr(annotation, "__name__", None) or str(annotation)
        raise NoJsonForm(f"{named} has no form in JSON") from error

    with_bytes = b'"contentEncoding":"base64"' in encode_json(schema)

    def decode(value: JSON) -> Any:
        # These types have their own base64, and that of values which were written without their type.
        return msgspec.convert(read_bytes(value) if with_bytes else value, annotation, str_keys=True)

    def encode(value: Any) -> JSON:
        found = _to_json(order_sets(value))
        decode(found)
        return found

    return Codec(_contain_errors(encode), _contain_errors(decode), schema)


class Parameters(Struct, frozen=True):
    """The parameters of a function, with their codecs. ``whole`` is the parameter that takes the whole input of a
    workflow: the only one, if its type is an object or it has no annotation."""

    signature: inspect.Signature
    codecs: dict[str, Codec]
    result: Codec

    @property
    def input_schema(self) -> JsonSchema:
        """The JSON Schema of an object that has each parameter by its name."""
        parameters = self.signature.parameters.items()
        shared: dict[str, Any] = {}
        return {
            "type": "object",
            "properties": {name: _share_definitions(one.schema, name, shared) for name, one in self.codecs.items()},
            "required": [name for name, one in parameters if one.default is inspect.Parameter.empty],
            "additionalProperties": False,
            **({"$defs": shared} if shared else {}),
        }

    @property
    def whole(self) -> str | None:
        if len(self.codecs) != 1:
            return None
        name, one = next(iter(self.codecs.items()))
        return name if not one.schema or _is_object(one.schema) else None


_DEFINITIONS = "#/$defs/"


def _share_definitions(schema: JsonSchema, member: str, shared: dict[str, Any]) -> JsonSchema:
    """Return the schema of a member without its own definitions, which are added to the ``shared`` ones of the whole:
    references are resolved from there. If the name of one stands for another type already, all are called after the
    member."""
    own: dict[str, Any] = schema.get("$defs", {})
    clash = any(shared.get(name, one) != one for name, one in own.items())
    renamed = {name: f"{member}.{name}" for name in own} if clash else {}

    def refer(value: Any) -> Any:
        if isinstance(value, list):
            return [refer(one) for one in value]
        if not isinstance(value, dict):
            return value
        found = {key: refer(one) for key, one in value.items() if key != "$defs"}
        name = str(found.get("$ref", "")).removeprefix(_DEFINITIONS)
        return {**found, "$ref": f"{_DEFINITIONS}{renamed[name]}"} if name in renamed else found

    shared.update({renamed.get(name, name): refer(one) for name, one in own.items()})
    return refer(schema)


def _is_object(schema: JsonSchema) -> bool:
    if "$ref" in schema:
        return True
    if "anyOf" in schema:
        return any(_is_object(one) for one in schema["anyOf"])
    return schema.get("type") == "object"


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Read the parameters of a function.

    :raises NoJsonForm: if the type of one, or of the result, has no form in JSON or is not defined; it is named
    """
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        remedy = "import it outside of `if TYPE_CHECKING`, or define it in the module, above the function"
        message = f"{function.__qualname__}: its annotations name {error.name}, which is not defined here: {remedy}"
        raise NoJsonForm(message) from error
    codecs: dict[str, Codec] = {}
    for name, one in signature.parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise NoJsonForm(f"{function.__qualname__} takes {one}: declare each parameter by name")
        codecs[name] = _codec_of(function, f"its parameter {name}", hints.get(name, Any))
    return Parameters(signature, codecs, _codec_of(function, "its result", hints.get("return", Any)))


def _codec_of(function: Callable[..., Any], what: str, annotation: Any) -> Codec:
    try:
        return codec(annotation)
    except NoJsonForm as error:
        raise NoJsonForm(f"{function.__qualname__}: {what}: {error}") from error
