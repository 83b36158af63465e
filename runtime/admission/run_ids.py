"""Run ids, made where a start has none."""

from hashlib import sha256
from uuid import UUID


def derived_run_id(stream: str, sequence: int, time_ns: int) -> str:
    """Make a run id (UUIDv7) from a start message's place in the stream: the same whenever it is delivered."""
    random = int.from_bytes(sha256(f"{stream}/{sequence}/{time_ns}".encode()).digest()[:10], "big")
    milliseconds = time_ns // 1_000_000
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | ((random >> 64) & 0xFFF) << 64
    return str(UUID(int=value | 0b10 << 62 | (random & ((1 << 62) - 1))))
