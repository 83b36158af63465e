"""Decoding of JSON from outside: msgspec's decoder, with Python's parsing of numbers and with repaired texts.

msgspec takes about 18 microseconds to parse a double with a large exponent, such as ``1e300``: two hundred times as
long as Python. One megabyte of them would block the whole process, all threads included, for seconds. So inputs,
payloads, outputs and answers are decoded with this module.
"""

import re
from functools import lru_cache
from typing import Any, TypeVar, overload

import msgspec

from callboard.lib.text import normalise_text
from callboard.lib.text_bytes import BOM, other_encoding

T = TypeVar("T")


class NestsTooDeep(msgspec.DecodeError):
    """A JSON text nests too deeply to be decoded."""


def _double(text: str) -> float:
    """Parse a double. msgspec turns the error into a `msgspec.ValidationError` with the place of the number."""
    value = float(text)
    if value - value:  # NaN if the value is infinite; a call of isfinite would double the time of this function
        raise ValueError("Number out of range")
    return value


def decoder(type: Any = Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder for a type; without a type, for any JSON value."""
    return msgspec.json.Decoder(type, float_hook=_double)


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
"""An escape within a JSON string. A whole surrogate pair is matched first, so the second form is always one half."""

_HALF_ESCAPE_CHARS = len(r"\ud800")

_decode_any = decoder().decode
_decoder_of = lru_cache(256)(decoder)


@overload
def decode_json(data: bytes | bytearray | str | memoryview | msgspec.Raw) -> Any: ...


@overload
def decode_json(data: bytes | bytearray | str | memoryview | msgspec.Raw, *, type: type[T]) -> T: ...


def decode_json(data: bytes | bytearray | str | memoryview | msgspec.Raw, *, type: Any = Any) -> Any:
    """Decode JSON from outside; replace halves of surrogate pairs as `callboard.lib.text` does.

    :raises NestsTooDeep: if it nests too deeply
    :raises msgspec.DecodeError: if it is not JSON, is not UTF-8, or has another type
    """
    decode = _decode_any if type is Any else _decoder_of(type).decode
    try:
        return decode(data)
    except RecursionError:
        raise NestsTooDeep("the JSON text nests too deep") from None
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeError) as error:
        if isinstance(data, bytes | bytearray) and (encoding := other_encoding(bytes(data))):
            raise msgspec.DecodeError(f"the text is {encoding}, not UTF-8") from error
        text = _repaired_json(data)
        if text is not None:
            return decode(text)
        if isinstance(error, msgspec.DecodeError):
            raise
        raise msgspec.DecodeError(f"not UTF-8: {error}") from error


def _repaired_json(data: bytes | bytearray | str | memoryview | msgspec.Raw) -> str | None:
    """Return a JSON text without its byte order mark and without halves of surrogate pairs, literal or escaped.

    None if it contains none of these, or if its bytes are not text.
    """
    if isinstance(data, str) and data.isascii() and "\\u" not in data:
        return None
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    made = normalise_text(_ESCAPE.sub(_whole_escape, text.removeprefix(BOM)))
    return None if made == text else made


def _whole_escape(match: re.Match[str]) -> str:
    escape = match[0]
    is_half = len(escape) == _HALF_ESCAPE_CHARS and escape[2] in "dD"
    return r"\ufffd" if is_half else escape
