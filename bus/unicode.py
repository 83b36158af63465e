"""Unicode repair: text from outside as text that UTF-8 can carry.

JSON may spell half of a surrogate pair (``\\ud83d``), and programs that count in UTF-16 units cut texts between the
halves. Such text has no UTF-8 form, so neither an event nor a request can hold it. Every boundary at which text comes
in repairs it here: halves that meet are joined, and a half that stays alone becomes U+FFFD. Pure.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

import msgspec

T = TypeVar("T")

_HALF = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
"""An escape within a JSON string. A whole surrogate pair is matched first, so the second form is always one half."""

_HALF_ESCAPE_CHARS = len(r"\ud800")


def repaired(text: str) -> str:
    """Return a text with its surrogate pairs joined and each lone half replaced by U+FFFD."""
    if text.isascii() or _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def joined(text: str) -> str:
    """Return a text with its surrogate pairs joined; halves that stay alone remain."""
    if text.isascii() or _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def repaired_value(value: Any) -> Any:
    """Return a JSON value whose texts are repaired, names of members included."""
    match value:
        case str():
            return repaired(value)
        case dict():
            members = cast("dict[Any, Any]", value)
            return {repaired_value(name): repaired_value(member) for name, member in members.items()}
        case list() | tuple():
            return [repaired_value(item) for item in cast("list[Any]", value)]
        case _:
            return value


class Joiner:
    """Repairs a text that comes in pieces: the first half of a pair waits for the piece with the second."""

    def __init__(self) -> None:
        self._first = ""

    def take(self, piece: str) -> str:
        """Take the next piece; return the text that is certain by now."""
        text = self._first + piece
        self._first = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return repaired(text[:-1] if self._first else text)

    def rest(self) -> str:
        """Return the half that still waits, repaired, when no more pieces come."""
        rest, self._first = repaired(self._first), ""
        return rest


def encode_json(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value as JSON, with its texts repaired if they have to be.

    :raises TypeError, ValueError, OverflowError, RecursionError: if it has no form in JSON
    """
    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
        return msgspec.json.encode(repaired_value(plain))


@overload
def decode_json(data: bytes | bytearray | str) -> Any: ...
@overload
def decode_json(data: bytes | bytearray | str, *, type: type[T]) -> T: ...
def decode_json(data: bytes | bytearray | str, *, type: Any = Any) -> Any:
    """Read JSON that came from outside, with its texts repaired.

    :raises msgspec.DecodeError: if it is not JSON, or not UTF-8
    :raises msgspec.ValidationError: if it does not fit ``type``
    :raises RecursionError: if it is nested too deep
    """
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeError) as error:
        text = _repaired_json(data)
        if text is not None:
            return msgspec.json.decode(text, type=type)
        if isinstance(error, msgspec.DecodeError):
            raise
        raise msgspec.DecodeError(f"not UTF-8: {error}") from error


def _repaired_json(data: bytes | bytearray | str) -> str | None:
    """Return a JSON text without halves of surrogate pairs, written out or escaped; None if it has none, or its bytes
    are not text."""
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    made = repaired(_ESCAPE.sub(_whole_escape, text))
    return None if made == text else made


def _whole_escape(match: re.Match[str]) -> str:
    escape = match[0]
    is_half = len(escape) == _HALF_ESCAPE_CHARS and escape[2] in "dD"
    return r"\ufffd" if is_half else escape
