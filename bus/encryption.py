"""Encryption of runs: what people and models have said stands in the log under a key of its own, and goes with it.

A run that is started with a named key has every payload and large value encrypted (AES-SIV, RFC 5297; equal values
under one key give equal bytes). What is stored is still an event: members that tell how the run goes stay readable, the
rest is replaced by `HIDDEN` or is empty, and ``$encrypted`` holds the key's name and the whole. Readers that lack the
key see a run without its words; whoever has it sees all of it. When the key is destroyed, nobody has it, wherever
copies of the log may be.
"""

import base64
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct, inspect

from callboard.bus import payloads
from callboard.bus.events import TYPES
from callboard.bus.subjects import TOKEN_BYTES_MAX

KEY_BYTES = 64
"""Size of a key: AES-256 in SIV mode takes two."""

HIDDEN = "(encrypted)"
"""Stands where a text is encrypted."""

READABLE = frozenset(
    {
        *("code", "type", "subtype", "language", "hash", "name", "id", "outline", "breakpoints", "limits", "seed"),
        *("run", "key", "store", "tenant", "traceparent", "tracestate", "execution_id", "tags", "encryption_key"),
        *("worker", "awaits", "status", "default_model", "stand_in", "models", "skills", "runtime"),
        *("verb", "kind", "node", "step", "from", "to", "edge", "model", "provider", "server", "tool", "stop_reason"),
        *("response_model", "of", "interaction", "channel_type", "channel", "child", "timeout_action", "subject"),
    }
)
"""Members that are left readable besides numbers, times and words of the vocabulary: names, and how the run goes."""

_MEMBER = "$encrypted"
_BEGINS = b'{"$encrypted":'
_VALUE = b"$encrypted "
_OF_VALUE = b"value"
_OF_COMMAND = b"command"

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Undecipherable(Exception):
    """Something does not decrypt with the key that it names: it was not encrypted with that one, or not for here."""


class _Encrypted(Struct):
    """The member that holds what is encrypted."""

    key: str
    data: str


class _Holder(Struct):
    encrypted: _Encrypted = msgspec.field(name=_MEMBER)


_holder = msgspec.json.Decoder(_Holder).decode


class Key:
    """A named key."""

    def __init__(self, name: str, secret: bytes) -> None:
        # Loaded by those alone who have encrypted runs.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self.name = name
        self._cipher = AESSIV(secret)

    def payload(self, event_type: str, n: int, payload: bytes, blobs: Mapping[str, bytes]) -> "EncryptedPayload":
        """Encrypt the payload of event ``n`` and its large values, whose digests become those of what is stored."""
        kept: dict[str, bytes] = {}
        renamed: dict[str, str] = {}
        for digest, value in blobs.items():
            # What stands inside a value comes before it.
            data = self.value(payloads.renamed(value, renamed))
            renamed[digest] = sha256(data).hexdigest()
            kept[renamed[digest]] = data
        payload = payloads.renamed(payload, renamed)
        return EncryptedPayload(self._enclosed(payload, _place(event_type, n), _shown(event_type, payload)), kept)

    def value(self, value: bytes) -> bytes:
        """Encrypt a large value."""
        return b"%b%b\n%b" % (_VALUE, self.name.encode(), self._cipher.encrypt(value, [_OF_VALUE]))

    def command(self, body: bytes) -> bytes:
        """Encrypt the body of a command."""
        return self._enclosed(body, _OF_COMMAND, {})

    def _enclosed(self, data: bytes, place: bytes, shown: Mapping[str, Raw]) -> bytes:
        text = base64.b64encode(self._cipher.encrypt(data, [place])).decode()
        return _encode({_MEMBER: _Encrypted(self.name, text), **shown})

    def decrypted_payload(self, event_type: str, n: int, stored: bytes) -> bytes:
        """Return the payload of event ``n`` as it was before.

        :raises Undecipherable: if this is not the key, or it was encrypted for another event
        """
        return self._decrypted(base64.b64decode(_holder(stored).encrypted.data), _place(event_type, n))

    def decrypted_command(self, stored: bytes) -> bytes:
        """Return the body of a command as it was before. Raises as `decrypted_payload`."""
        return self._decrypted(base64.b64decode(_holder(stored).encrypted.data), _OF_COMMAND)

    def decrypted_value(self, stored: bytes) -> bytes:
        """Return a large value as it was before. Raises as `decrypted_payload`."""
        return self._decrypted(stored.partition(b"\n")[2], _OF_VALUE)

    def _decrypted(self, data: bytes, place: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(data, [place])
        except InvalidTag:
            raise Undecipherable(f"it does not decrypt with the key {self.name!r}") from None


class EncryptedPayload(NamedTuple):
    """A payload as it is stored, and the large values that it names, by their digests."""

    payload: bytes
    blobs: dict[str, bytes]


class Lack(Enum):
    """Why there is no key of a name."""

    MISSING = "missing"
    """Nobody has destroyed it, and it is not there: it may come, or come back."""
    DESTROYED = "destroyed"
    """It is gone for good, and a mark says so."""


class KeyRing(Protocol):
    """Where keys are kept, by tenant and name."""

    async def get(self, tenant: str, name: str) -> Key | Lack:
        """Return a key, or why there is none.

        :raises NoAnswer: if that could not be found out
        """
        ...

    async def make(self, tenant: str, name: str) -> Key | None:
        """Return a key, a new one if there never was one of that name; None if it has been destroyed.

        :raises NoAnswer: if no answer came
        """
        ...


class NoKeys:
    """A `KeyRing` without keys, for those who are to see no words."""

    async def get(self, tenant: str, name: str) -> Key | Lack:
        return Lack.DESTROYED

    async def make(self, tenant: str, name: str) -> Key | None:
        return None


def encryptable(bytes_max: int) -> int:
    """How long the body of a command may be that has at most so many bytes when it is encrypted."""
    return bytes_max * 3 // 4 - KEY_BYTES - TOKEN_BYTES_MAX


def is_encrypted(payload: bytes | Raw) -> bool:
    """Whether a payload, or the body of a command, is encrypted."""
    return bytes(memoryview(payload)[: len(_BEGINS)]) == _BEGINS


def key_of(stored: bytes | Raw) -> str:
    """The name of the key of an encrypted payload or command.

    :raises msgspec.DecodeError: if it has none
    """
    return _holder(stored).encrypted.key


def key_of_value(stored: bytes) -> str | None:
    """The name of the key of a large value, None if it is not encrypted."""
    return stored[len(_VALUE) :].partition(b"\n")[0].decode() if stored.startswith(_VALUE) else None


def _place(event_type: str, n: int) -> bytes:
    return f"{event_type} {n}".encode()


# -- what stays readable -----------------------------------------------------------------------------------------------

Show = Callable[[Raw], Raw]
"""What is shown of a member."""


def _shown(event_type: str, payload: bytes) -> dict[str, Raw]:
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
            return lambda value: _members_shown(cls, value)
        case inspect.UnionType(types=types):
            show = next((_show(one) for one in types if not isinstance(one, inspect.NoneType)), _whole)
            return lambda value: value if bytes(value) == b"null" else show(value)
        case _:
            return _whole


def _members_shown(shape: type[Any], value: Raw) -> Raw:
    show = _show_struct(shape)
    return Raw(_encode({name: show[name](member) for name, member in _members(value).items() if name in show}))


def _whole(value: Raw) -> Raw:
    return value


def _constant(text: bytes) -> Show:
    return lambda _value: Raw(text)
