"""Payloads: large values travel beside their event and are put back when it is read.

A payload above `INLINE_BYTES_MAX` has its large parts (from the leaves up, until it fits) replaced by markers
``{"$blob": <sha256>, "bytes": <size>}``; the parts go, as JSON, to the log's blob store under their digest, and the
event lists the digests. Being content-addressed, a value that is repeated costs a digest.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

INLINE_BYTES_MAX = 256 * 1024
"""Largest payload that stays whole inside its event, in bytes."""

PART_BYTES_MIN = 4 * 1024
"""Parts smaller than this are not worth a blob of their own."""

SPLIT_DEPTH_MAX = 32
"""Parts nested deeper are not taken apart: they go out whole."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def split(payload: bytes, inline_max: int = INLINE_BYTES_MAX) -> tuple[bytes, dict[str, bytes]]:
    """Return the payload with large parts replaced by markers, and the parts by digest."""
    if len(payload) <= inline_max:
        return payload, {}
    blobs: dict[str, bytes] = {}

    def shrink(value: Any, budget: int, depth: int = 0) -> Any:
        data = _encode(value)
        if len(data) <= budget:
            return value
        if depth >= SPLIT_DEPTH_MAX:
            pass
        elif isinstance(value, dict):
            share = max(PART_BYTES_MIN, budget // (2 * len(value)))
            value = {name: shrink(member, share, depth + 1) for name, member in value.items()}
        elif isinstance(value, list) and len(value) <= budget // 128:
            share = max(PART_BYTES_MIN, budget // (2 * len(value)))
            value = [shrink(member, share, depth + 1) for member in value]
        data = _encode(value)
        if len(data) <= budget:
            return value
        digest = sha256(data).hexdigest()
        blobs[digest] = data
        return {"$blob": digest, "bytes": len(data)}

    # The payload itself stays an object: its members are what may move out.
    document = _decode(payload)
    share = max(PART_BYTES_MIN, inline_max // (2 * max(1, len(document))))
    slim = {name: shrink(member, share) for name, member in document.items()}
    return _encode(slim), blobs


def join(payload: bytes, blobs: Mapping[str, bytes]) -> bytes:
    """Put the parts back that `split` took out; a marker whose digest is not among the blobs is left as it is."""

    document = [_decode(payload)]
    # By hand and not by recursion: what is nested deeper than Python's stack must stay readable.
    level: list[Any] = [document]
    while level:
        inner: list[Any] = []
        for container in level:
            for at, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
                while isinstance(value, dict) and len(value) == 2:
                    digest = value.get("$blob")
                    if not isinstance(digest, str) or digest not in blobs:
                        break
                    value = container[at] = _decode(blobs[digest])
                if isinstance(value, dict | list):
                    inner.append(value)
        level = inner
    return _encode(document[0])
