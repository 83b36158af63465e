"""Run ids: of the run that a start message starts, from its body or its place in the stream, and of child runs."""

import hmac
import uuid
from hashlib import sha256
from uuid import UUID

import msgspec

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS


class _Named(msgspec.Struct):
    run_id: str | None = None


def named_run_id(body: bytes) -> str | None:
    """Return the run id in a start message, None if it has none. The rest of the message may be invalid."""
    try:
        return decode_json(body, type=_Named).run_id
    except JSON_ERRORS:
        return None


def derived_run_id(stream: str, sequence: int, time_ns: int) -> str:
    """Return a run id (UUIDv7) derived from a start message's place in the stream; the same for each delivery."""
    random = int.from_bytes(sha256(f"{stream}/{sequence}/{time_ns}".encode()).digest()[:10], "big")
    milliseconds = time_ns // 1_000_000
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | ((random >> 64) & 0xFFF) << 64
    return str(UUID(int=value | 0b10 << 62 | (random & ((1 << 62) - 1))))


def child_id(run: str, key: str) -> str:
    """Return the id of the child run that a run starts with the effect ``key``."""
    return str(uuid.uuid5(uuid.UUID(hmac.digest(b"callboard", run.encode(), "sha256").hex()[:32]), key))
