"""Large values in the stream: pieces that are stored separately from the events, under the digest of the whole value.

The subjects of the pieces are ``<subject>.<i>``, i = 0, 1, 2 …; the header ``Cb-Chunks`` of each piece is the number of
pieces. Clients that may publish below ``cb.blob`` can add other pieces there. If several pieces have the same number,
readers use the first one.
"""

import re
from collections.abc import Awaitable, Callable

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream_api import api, direct_get
from callboard.bus.nats.requests import Requests
from callboard.lib.concurrency import side_by_side

CHUNK_BYTES = 512 * 1024
"""Size of the pieces of a large value; headers, subject and piece stay below the server's 1 MiB."""

CHUNKS_AT_ONCE = 16

READ_CHUNKS = 1_000
READ_BYTES_MAX = 64 * 1024 * 1024
"""Maximum number of pieces, and of their bytes, in one request."""

COUNT = "Cb-Chunks"

_NUMBER = re.compile(r"[0-9]{1,9}")


class BlobTooLarge(Exception):
    """A large value exceeds the maximum size."""


class Blobs:
    """The large values of a stream. A value is addressed by its subject, without the number of a piece."""

    def __init__(
        self,
        nc: ReconnectingClient,
        requests: Requests,
        stream: str,
        publish: Callable[[OutgoingMessage], Awaitable[int]],
    ) -> None:
        self._nc = nc
        self._requests = requests
        self._stream = stream
        self._publish = publish

    async def put(self, subject: str, data: bytes) -> None:
        """Store a value, as `callboard.bus.log.port.EventLog.put_blob` describes."""
        chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)] or [b""]

        async def put(i: int) -> None:
            await self._publish(OutgoingMessage(f"{subject}.{i}", chunks[i], {COUNT: str(len(chunks))}))

        # Do not store pieces again that an earlier attempt has stored: in a nearly full stream they would use up the
        # remaining space.
        there = await self._there(subject)
        await side_by_side([i for i in range(len(chunks)) if i not in there], put, CHUNKS_AT_ONCE)

    async def _there(self, subject: str) -> set[int]:
        """Return the numbers of the pieces that are in the stream."""
        found: dict[str, int] = {}
        while True:
            request = {"subjects_filter": f"{subject}.*", "offset": len(found)}
            answer = await api(self._requests, f"STREAM.INFO.{self._stream}", request)
            if "error" in answer:
                raise NoAnswer(str(answer["error"]))
            page: dict[str, int] = answer["state"].get("subjects") or {}
            found |= page
            if not page or len(found) >= answer.get("total", 0):
                return {i for piece in found if (i := _number(piece)) is not None}

    async def get(self, subject: str, bytes_max: int | None = None) -> bytes | None:
        """Return a value, or None if it is missing or incomplete, for example because its writer crashed.

        :raises BlobTooLarge: if the value has more than ``bytes_max`` bytes
        :raises NoAnswer: if no answer came
        """
        size = 0
        at_once = READ_BYTES_MAX if bytes_max is None else min(READ_BYTES_MAX, bytes_max + CHUNK_BYTES)
        chunks: dict[int, bytes] = {}
        count = 1
        after = 0
        while True:
            request = {
                "next_by_subj": f"{subject}.*",
                "seq": after + 1,
                "batch": READ_CHUNKS,
                "max_bytes": at_once,
            }
            messages, pending = await direct_get(self._nc, self._stream, request)
            for message in messages:
                size += len(message.data)
                if bytes_max is not None and size > bytes_max:
                    raise BlobTooLarge
                headers = message.headers or {}
                after = int(headers["Nats-Sequence"])
                i = _number(headers["Nats-Subject"])
                if i is not None and i not in chunks:
                    chunks[i] = message.data
                    count = int(headers[COUNT]) if i == 0 and _NUMBER.fullmatch(headers.get(COUNT, "")) else count
            if not messages or not pending:
                break
        if any(i not in chunks for i in range(count)):
            return None
        return b"".join(chunks[i] for i in range(count))


def _number(subject: str) -> int | None:
    """Return the number of a piece from its subject; None if the subject does not end in a number."""
    last = subject.rpartition(".")[2]
    return int(last) if _NUMBER.fullmatch(last) else None
