"""Decoding JSON that users wrote: msgspec's decoder with Python's reading of numbers.

msgspec reads a double with a large exponent, such as ``1e300``, in about 18 microseconds, two hundred times as long as
Python does. One megabyte of them would hold the whole process for seconds, threads included. So inputs, payloads,
outputs and answers are decoded here.
"""

from functools import lru_cache
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


def _double(text: str) -> float:
    """Read a double; msgspec makes a `msgspec.ValidationError` of the error, with the place of the number."""
    value = float(text)
    if value - value:  # of an infinity that is NaN; a call of isfinite would take as long as all the rest
        raise ValueError("Number out of range")
    return value


def decoder(type: Any = Any) -> msgspec.json.Decoder[Any]:
    """Make a decoder of a type; untyped it gives JSON data."""
    return msgspec.json.Decoder(type, float_hook=_double)


_decode_any = decoder().decode
_decoder_of = lru_cache(256)(decoder)


@overload
def decode_json(data: bytes | bytearray | str | memoryview | msgspec.Raw) -> Any: ...


@overload
def decode_json(data: bytes | bytearray | str | memoryview | msgspec.Raw, *, type: type[T]) -> T: ...


def decode_json(data: bytes | bytearray | str | memoryview | msgspec.Raw, *, type: Any = Any) -> Any:
    """Decode a JSON text as `msgspec.json.decode` does.

    :raises msgspec.DecodeError: if it is none, is of another type, or nests too deep to be read
    """
    try:
        return _decode_any(data) if type is Any else _decoder_of(type).decode(data)
    except RecursionError:
        raise msgspec.DecodeError("the JSON text nests too deep") from None
