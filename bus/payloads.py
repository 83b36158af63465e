"""Payloads: large values travel beside their event and are put back when it is read.

A payload above `INLINE_BYTES_MAX` has its large parts (from the leaves up, until it fits) replaced by markers
``{"$blob": <sha256>, "bytes": <size>}``; the parts go, as JSON, to the log's blob store under their digest, and the
event lists the digests. Being content-addressed, a value that is repeated costs a digest.

Where a payload is split, an object of its own that could be taken for a marker (two members, one of them named
``$blob``, ``$$blob``, … with a digest) has such names lengthened by a ``$``; `join` takes it off again. What is not
split is not touched.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, TypeGuard

import msgspec
from msgspec import Raw

from callboard.bus.decoding import decoder

INLINE_BYTES_MAX = 256 * 1024
"""Largest payload that stays whole inside its event, in bytes."""

PART_BYTES_MIN = 4 * 1024
"""Parts smaller than this are not worth a blob of their own."""

SPLIT_DEPTH_MAX = 32
"""Parts nested deeper are not taken apart: they go out whole."""

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
    """Return the payload, an encoded object, with large parts replaced by markers, and the parts by digest: a part that
    has markers itself comes behind what they stand for.

    Values are measured, hashed and moved as they are encoded; only what is taken apart is looked into.
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

    # The payload itself stays an object: its members are what may move out.
    members = _members(_with_marks_escaped(payload))
    share = max(PART_BYTES_MIN, inline_max // (2 * max(1, len(members))))
    slim = {name: shrink(member, share) for name, member in members.items()}
    return (_encode(slim), blobs) if blobs else (payload, {})


def join(payload: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """Put the parts back that `split` took out; a marker whose digest is not among the blobs is left as it is."""
    if not blobs:
        return payload

    def restored(value: Any) -> Any:
        while _is_marked(value):
            digest = value.get(_MARK)
            if not isinstance(digest, str) or digest not in blobs:
                break
            if _MARK_IN_JSON not in blobs[digest]:
                return Raw(blobs[digest])
            value = _decode(blobs[digest])
        return _unescaped(value)

    document = _decode(payload)
    _replace(document, restored)
    return _encode(document)


def renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    """Return what `split` has made, the payload or a part, with other digests in its markers."""

    def renaming(found: re.Match[bytes]) -> bytes:
        digest = found[1].decode()
        return b'{"$blob":"%b"' % names.get(digest, digest).encode()

    return _MARKER.sub(renaming, data) if _MARK_IN_JSON in data else data


def _with_marks_escaped(payload: bytes) -> bytes:
    if _MARK_IN_JSON not in payload:
        return payload
    document = _decode(payload)
    _replace(document, _escaped)
    return _encode(document)


def _replace(document: Any, replacement: Callable[[dict[str, Any]], Any]) -> None:
    """Replace every object inside a document, the outer before what is inside its replacement.

    By hand and not by recursion: what is nested deeper than Python's stack must stay readable.
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
    """Whether a value is, or could be taken for, a marker or the escaped form of one."""
    return isinstance(value, dict) and len(value) == 2 and any(_marks(name, member) for name, member in value.items())


def _marks(name: str, member: Any) -> bool:
    return _NAME.fullmatch(name) is not None and isinstance(member, str) and _DIGEST.fullmatch(member) is not None


def _escaped(value: Any) -> Any:
    if not _is_marked(value):
        return value
    return {f"${name}" if _NAME.fullmatch(name) else name: member for name, member in value.items()}


def _unescaped(value: Any) -> Any:
    if not _is_marked(value):
        return value
    return {name[1:] if name != _MARK and _NAME.fullmatch(name) else name: member for name, member in value.items()}
