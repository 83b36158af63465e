"""Run ids: which run a start message asks for, by its body or, where that names none, by its place in the stream."""

from hashlib import sha256
from uuid import UUID

import msgspec

from callboard.bus.decoding import decode_json
from callboard.bus.json_errors import JSON_ERRORS


class _Named(msgspec.Struct):
    run_id: str | None = None


def named_run_id(body: bytes) -> str | None:
    """The run id that a start message names, if it does, whatever else may be wrong with it."""
    try:
        return decode_json(body, type=_Named).run_id
    except JSON_ERRORS:
        return None


def derived_run_id(stream: str, sequence: int, time_ns: int) -> str:
    """Make a run id (UUIDv7) from a start message's place in the stream: the same whenever it is delivered."""
    random = int.from_bytes(sha256(f"{stream}/{sequence}/{time_ns}".encode()).digest()[:10], "big")
    milliseconds = time_ns // 1_000_000
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | ((random >> 64) & 0xFFF) << 64
    return str(UUID(int=value | 0b10 << 62 | (random & ((1 << 62) - 1))))
