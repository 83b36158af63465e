"""Canonical JSON: equal values give equal bytes, for digests and comparisons."""

import hashlib
from typing import Any

import msgspec

from callboard.lib.text import normalise_json

_canonical = msgspec.json.Encoder(order="deterministic")


def canonical(value: Any) -> bytes:
    """Encode a value as JSON with sorted members, so that equal values give equal bytes, for digests and comparisons.

    Texts that cannot be encoded as UTF-8 are repaired."""
    try:
        return _canonical.encode(value)
    except UnicodeEncodeError:
        return _canonical.encode(normalise_json(msgspec.to_builtins(value, str_keys=True)))


def digest(*parts: Any) -> str:
    """Return the sha256, in hex, of the canonical JSON of the parts, each terminated by a NUL byte."""
    return hashlib.sha256(b"".join([canonical(part) + b"\0" for part in parts])).hexdigest()
