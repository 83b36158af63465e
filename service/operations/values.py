"""Large values of runs, in parts that fit into answers: for clients that cannot read the stream, such as tenants."""

import re

from msgspec import Struct

from callboard.bus.log.encryption import key_of_value
from callboard.bus.nats.blobs import COUNT
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef

PART_BYTES = 384 * 1024
"""Bytes of a value in one answer, before they are encoded in Base64."""

ENCRYPTED_BYTES_MAX = 64 * 1024 * 1024
"""Largest encrypted value of which parts are served: each part requires that the whole value is decrypted."""

_NUMBER = re.compile(r"[0-9]{1,9}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ReadValue(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``value``: the large value of a run with this sha256. ``piece`` and ``offset`` are those of the previous
    answer."""

    run_id: str
    sha256: str
    piece: int = 0
    offset: int = 0


class ValuePart(Struct, frozen=True):
    """Answer of ``value``: the next bytes, in Base64. If ``more`` is true, ask again with ``piece`` and ``offset``."""

    data: bytes
    piece: int
    offset: int
    more: bool


async def part_of_value(log: JetStreamLog, ref: RunRef, asked: ReadValue) -> ValuePart | None:
    """Return a part of a large value, or None if the value or the part does not exist.

    :raises _TooLarge: if the value is encrypted, and larger than `ENCRYPTED_BYTES_MAX`
    :raises NoAnswer: if the log does not answer
    """
    if not _DIGEST.fullmatch(asked.sha256) or asked.piece < 0 or asked.offset < 0:
        return None
    subject = log.subjects.blob(ref, asked.sha256)
    first = await log.next_message(f"{subject}.0", 1)
    if first is None:
        return None
    if key_of_value(first.data) is not None:
        return await _decrypted_part(log, ref, asked)
    count = int(found) if _NUMBER.fullmatch(found := first.headers.get(COUNT, "")) else 1
    stored = first if asked.piece == 0 else await log.next_message(f"{subject}.{asked.piece}", 1)
    if stored is None or asked.piece >= count:
        return None
    return _part(stored.data, asked, last=asked.piece == count - 1)


async def _decrypted_part(log: JetStreamLog, ref: RunRef, asked: ReadValue) -> ValuePart | None:
    try:
        return _part(await log.get_blob(ref, asked.sha256, ENCRYPTED_BYTES_MAX), asked, last=True)
    except KeyError:
        return None


def _part(piece: bytes, asked: ReadValue, *, last: bool) -> ValuePart:
    end = asked.offset + PART_BYTES
    data = piece[asked.offset : end]
    if end < len(piece):
        return ValuePart(data, asked.piece, end, more=True)
    return ValuePart(data, asked.piece + 1, 0, more=not last)
