"""Encryption of runs: the texts of people and models are encrypted in the log, and erased by destroying their key.

In a run that is started with a named key, every payload and large value is encrypted (AES-SIV, RFC 5297; equal values
under one key give equal bytes). The stored message is still an event. Members that show the progress of the run stay
readable; the others are replaced by `HIDDEN` or are empty. ``$encrypted`` contains the key's name and the complete
encrypted payload. Readers without the key see the run without its texts; readers with the key see everything. After the
key is destroyed, no copy of the log can be decrypted.
"""

import base64
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct, inspect

from callboard.bus.events import TYPES
from callboard.bus.log import payloads
from callboard.bus.subjects import TOKEN_BYTES_MAX

KEY_BYTES = 64
"""Size of a key: AES-256 in SIV mode uses two keys of 32 bytes."""

HIDDEN = "(encrypted)"
"""Replaces an encrypted text."""

READABLE = frozenset(
    {
        *("code", "type", "subtype", "language", "hash", "name", "id", "outline", "breakpoints", "limits", "seed"),
        *("run", "key", "store", "tenant", "traceparent", "tracestate", "execution_id", "tags", "encryption_key"),
        *("worker", "awaits", "status", "default_model", "stand_in", "models", "skills", "runtime"),
        *("verb", "kind", "node", "step", "from", "to", "edge", "model", "provider", "server", "tool", "stop_reason"),
        *("response_model", "of", "interaction", "channel_type", "channel", "child", "timeout_action", "subject"),
    }
)
"""Members that stay readable, besides numbers, times and words of the vocabulary: names, and the progress of the run.
"""

_MEMBER = "$encrypted"
_BEGINS = b'{"$encrypted":'
_VALUE = b"$encrypted "
_OF_VALUE = b"value"
_OF_COMMAND = b"command"

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Undecipherable(Exception):
    """Data cannot be decrypted with the key that it names: it was encrypted with another key, or for another place."""


class _Encrypted(Struct):
    """The member that contains the encrypted data."""

    key: str
    data: str


class _Holder(Struct):
    encrypted: _Encrypted = msgspec.field(name=_MEMBER)


_holder = msgspec.json.Decoder(_Holder).decode


class Key:
    """A named key."""

    def __init__(self, name: str, secret: bytes) -> None:
        # Imported here, so that only workers with encrypted runs load it.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self.name = name
        self._cipher = AESSIV(secret)

    def payload(self, event_type: str, n: int, payload: bytes, blobs: Mapping[str, bytes]) -> "EncryptedPayload":
        """Encrypt the payload of event ``n`` and its large values. Their digests are replaced by the digests of the
        encrypted values."""
        kept: dict[str, bytes] = {}
        renamed: dict[str, str] = {}
        for digest, value in blobs.items():
            # Values that this one refers to come before it, so their new digests are known.
            data = self.value(payloads.rename_digests(value, renamed))
            renamed[digest] = sha256(data).hexdigest()
            kept[renamed[digest]] = data
        payload = payloads.rename_digests(payload, renamed)
        return EncryptedPayload(self._enclose(payload, _place(event_type, n), _show_payload(event_type, payload)), kept)

    def value(self, value: bytes) -> bytes:
        """Encrypt a large value."""
        return b"%b%b\n%b" % (_VALUE, self.name.encode(), self._cipher.encrypt(value, [_OF_VALUE]))

    def command(self, body: bytes) -> bytes:
        """Encrypt the body of a command."""
        return self._enclose(body, _OF_COMMAND, {})

    def _enclose(self, data: bytes, place: bytes, shown: Mapping[str, Raw]) -> bytes:
        text = base64.b64encode(self._cipher.encrypt(data, [place])).decode()
        return _encode({_MEMBER: _Encrypted(self.name, text), **shown})

    def decrypted_payload(self, event_type: str, n: int, stored: bytes) -> bytes:
        """Return the decrypted payload of event ``n``.

        :raises Undecipherable: if it was encrypted with another key, or for another event
        """
        return self._decrypt(base64.b64decode(_holder(stored).encrypted.data), _place(event_type, n))

    def decrypted_command(self, stored: bytes) -> bytes:
        """Return the decrypted body of a command. Raises as `decrypted_payload`."""
        return self._decrypt(base64.b64decode(_holder(stored).encrypted.data), _OF_COMMAND)

    def decrypted_value(self, stored: bytes) -> bytes:
        """Return a decrypted large value. Raises as `decrypted_payload`."""
        return self._decrypt(stored.partition(b"\n")[2], _OF_VALUE)

    def _decrypt(self, data: bytes, place: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(data, [place])
        except InvalidTag:
            raise Undecipherable(f"it does not decrypt with the key {self.name!r}") from None


class EncryptedPayload(NamedTuple):
    """A payload as it is stored, and its large values by their digests."""

    payload: bytes
    blobs: dict[str, bytes]


class Lack(Enum):
    """Why a key is not available."""

    MISSING = "missing"
    """The key was not destroyed, but is not in the key store. It may be added or restored later."""
    DESTROYED = "destroyed"
    """The key was destroyed permanently. A marker in the key store records that."""


class KeyRing(Protocol):
    """A store of keys, by tenant and name."""

    async def get(self, tenant: str, name: str) -> Key | Lack:
        """Return a key, or why it is not available.

        :raises NoAnswer: if no answer came
        """
        ...

    async def make(self, tenant: str, name: str) -> Key | None:
        """Return a key; create it if there never was a key with this name. Return None if the key was destroyed.

        :raises NoAnswer: if no answer came
        """
        ...


class NoKeys:
    """A `KeyRing` without keys, for readers that must not see the texts of encrypted runs."""

    async def get(self, tenant: str, name: str) -> Key | Lack:
        return Lack.DESTROYED

    async def make(self, tenant: str, name: str) -> Key | None:
        return None


def encryptable(bytes_max: int) -> int:
    """Return the maximum length of a command's body whose encrypted form has at most ``bytes_max`` bytes."""
    return bytes_max * 3 // 4 - KEY_BYTES - TOKEN_BYTES_MAX


def is_encrypted(payload: bytes | Raw) -> bool:
    """Return whether a payload, or the body of a command, is encrypted."""
    return bytes(memoryview(payload)[: len(_BEGINS)]) == _BEGINS


def key_of(stored: bytes | Raw) -> str:
    """Return the name of the key of an encrypted payload or command.

    :raises msgspec.DecodeError: if it names no key
    """
    return _holder(stored).encrypted.key


def key_of_value(stored: bytes) -> str | None:
    """Return the name of the key of a large value, or None if it is not encrypted."""
    return stored[len(_VALUE) :].partition(b"\n")[0].decode() if stored.startswith(_VALUE) else None


def _place(event_type: str, n: int) -> bytes:
    return f"{event_type} {n}".encode()


# -- what stays readable -----------------------------------------------------------------------------------------------

Show = Callable[[Raw], Raw]
"""Returns the readable form of a member."""


def _show_payload(event_type: str, payload: bytes) -> dict[str, Raw]:
    show = _show_struct(TYPES[event_type])
    return {name: show[name](value) if name in show else Raw(b"null") for name, value in _members(payload).items()}


@cache
def _show_struct(shape: type[Any]) -> dict[str, Show]:
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    return {one.encode_name: _whole if one.encode_name in READABLE else _show(one.type) for one in info.fields}


def _show(shape: inspect.Type) -> Show:
    match shape:
        case inspect.AnyType() | inspect.RawType() | inspect.StrType():
            return _constant(_encode(HIDDEN))
        case inspect.ListType():
            return _constant(b"[]")
        case inspect.DictType():
            return _constant(b"{}")
        case inspect.StructType(cls=cls):
            return lambda value: _show_members(cls, value)
        case inspect.UnionType(types=types):
            show = next((_show(one) for one in types if not isinstance(one, inspect.NoneType)), _whole)
            return lambda value: value if bytes(value) == b"null" else show(value)
        case _:
            return _whole


def _show_members(shape: type[Any], value: Raw) -> Raw:
    show = _show_struct(shape)
    return Raw(_encode({name: show[name](member) for name, member in _members(value).items() if name in show}))


def _whole(value: Raw) -> Raw:
    return value


def _constant(text: bytes) -> Show:
    return lambda _value: Raw(text)
