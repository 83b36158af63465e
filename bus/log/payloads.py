"""Payloads: large values are stored separately from their event, and are inserted again when it is read.

In a payload above `INLINE_BYTES_MAX`, large parts (from the leaves up, until it fits) are replaced by markers
``{"$blob": <sha256>, "bytes": <size>}``. The parts are stored as JSON in the log's blob store under their digest, and
the event lists the digests. A value that occurs several times is stored once.

A payload that is split may itself contain an object that looks like a marker (two members, one of them named ``$blob``,
``$$blob``, … with a digest). `split` then adds a ``$`` to such names, and `join` removes it. Payloads that are not
split are not changed.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, TypeGuard

import msgspec
from msgspec import Raw

from callboard.lib.json_decoder import decoder

INLINE_BYTES_MAX = 256 * 1024
"""Largest payload that is stored completely inside its event, in bytes."""

PART_BYTES_MIN = 4 * 1024
"""Parts smaller than this are never stored separately."""

SPLIT_DEPTH_MAX = 32
"""Parts that nest deeper are not split further: they are stored as one value."""

_MARK = "$blob"
_MARK_IN_JSON = b'$blob":'
_NAME = re.compile(r"\$+blob")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MARKER = re.compile(rb'\{"\$blob":"([0-9a-f]{64})"')

_encode = msgspec.json.Encoder().encode
_decode = decoder().decode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_items = msgspec.json.Decoder(list[Raw]).decode


def split(payload: bytes, inline_max: int = INLINE_BYTES_MAX) -> tuple[bytes, dict[str, bytes]]:
    """Return the payload, an encoded object, with large parts replaced by markers, and the parts by digest.

    A part that contains markers comes after the parts that they refer to. Values are measured, hashed and moved in
    their encoded form; only values that are split are decoded.
    """
    if len(payload) <= inline_max:
        return payload, {}
    blobs: dict[str, bytes] = {}

    def shrink(value: Raw, budget: int, depth: int = 0) -> Raw:
        data = bytes(value)
        if len(data) <= budget:
            return value
        if depth < SPLIT_DEPTH_MAX:
            data = inside(data, budget, depth)
            if len(data) <= budget:
                return Raw(data)
        digest = sha256(data).hexdigest()
        blobs[digest] = data
        return Raw(_encode({_MARK: digest, "bytes": len(data)}))

    def inside(data: bytes, budget: int, depth: int) -> bytes:
        if data[:1] == b"{":
            members = _members(data)
            share = max(PART_BYTES_MIN, budget // (2 * len(members)))
            return _encode({name: shrink(member, share, depth + 1) for name, member in members.items()})
        if data[:1] == b"[":
            items = _items(data)
            if len(items) <= budget // 128:
                share = max(PART_BYTES_MIN, budget // (2 * len(items)))
                return _encode([shrink(item, share, depth + 1) for item in items])
        return data

    # The payload itself stays an object; only its members may be replaced.
    members = _members(_escape_marks(payload))
    share = max(PART_BYTES_MIN, inline_max // (2 * max(1, len(members))))
    slim = {name: shrink(member, share) for name, member in members.items()}
    return (_encode(slim), blobs) if blobs else (payload, {})


def join(payload: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """Insert the parts that `split` removed. A marker whose digest is not among the blobs is left unchanged."""
    if not blobs:
        return payload

    def restore(value: Any) -> Any:
        while _is_marked(value):
            digest = value.get(_MARK)
            if not isinstance(digest, str) or digest not in blobs:
                break
            if _MARK_IN_JSON not in blobs[digest]:
                return Raw(blobs[digest])
            value = _decode(blobs[digest])
        return _unescape(value)

    document = _decode(payload)
    _replace(document, restore)
    return _encode(document)


def rename_digests(data: bytes, names: Mapping[str, str]) -> bytes:
    """Replace digests in the markers of a payload or part that `split` returned."""

    def renaming(found: re.Match[bytes]) -> bytes:
        digest = found[1].decode()
        return b'{"$blob":"%b"' % names.get(digest, digest).encode()

    return _MARKER.sub(renaming, data) if _MARK_IN_JSON in data else data


def _escape_marks(payload: bytes) -> bytes:
    if _MARK_IN_JSON not in payload:
        return payload
    document = _decode(payload)
    _replace(document, _escape)
    return _encode(document)


def _replace(document: Any, replacement: Callable[[dict[str, Any]], Any]) -> None:
    """Replace every object inside a document: first the outer one, then the objects inside its replacement.

    Iterative instead of recursive, because documents may nest deeper than Python's stack.
    """
    level: list[Any] = [document]
    while level:
        inner: list[Any] = []
        for container in level:
            for at, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
                replaced = container[at] = replacement(value) if isinstance(value, dict) else value
                if isinstance(replaced, dict | list):
                    inner.append(replaced)
        level = inner


def _is_marked(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is, or looks like, a marker or the escaped form of one."""
    return isinstance(value, dict) and len(value) == 2 and any(_marks(name, member) for name, member in value.items())


def _marks(name: str, member: Any) -> bool:
    return _NAME.fullmatch(name) is not None and isinstance(member, str) and _DIGEST.fullmatch(member) is not None


def _escape(value: Any) -> Any:
    if not _is_marked(value):
        return value
    return {f"${name}" if _NAME.fullmatch(name) else name: member for name, member in value.items()}


def _unescape(value: Any) -> Any:
    if not _is_marked(value):
        return value
    return {name[1:] if name != _MARK and _NAME.fullmatch(name) else name: member for name, member in value.items()}
