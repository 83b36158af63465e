"""The messages of the log's stream as they are stored, whatever they mean."""

import base64
import datetime as dt
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.jetstream_api import api, direct_get
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import Subjects

READ_BATCH = 1_000
READ_BYTES_MAX = 16 * 1024 * 1024
"""Maximum number of messages, and of their bytes, in one request."""

_NO_MESSAGE = 10037

_HEADERS_OF_ANSWER = {
    "Nats-Stream",
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Num-Pending",
    "Nats-Last-Sequence",
}
"""Headers that the server adds to its answer, and that the stored message does not have."""


class StoredMessage(Struct, frozen=True):
    """A message of the stream that is not an event. ``time_ns`` is when it was stored, in nanoseconds since 1970."""

    sequence: int
    subject: str
    time_ns: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def time(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.time_ns / 1e9, dt.UTC)


class Copied(Struct, frozen=True):
    """A copy of a message of the stream, as archives and segments contain it."""

    sequence: int
    subject: str
    time: dt.datetime
    headers: Mapping[str, str]
    data: bytes


class StoredMessages:
    """The messages of a stream, read one by one from its leader, or copied in order."""

    def __init__(self, nc: ReconnectingClient, subjects: Subjects, stream: str) -> None:
        self.nc = nc
        self.subjects = subjects
        self.stream = stream
        self.requests = Requests(nc)

    async def last_sequence(self) -> int:
        """Return the sequence of the last message that was stored in the stream, 0 if there never was one.

        :raises NoAnswer: if no answer came
        """
        answer = await api(self.requests, f"STREAM.INFO.{self.stream}", {})
        if "error" in answer:
            raise NoAnswer(str(answer["error"]))
        return answer["state"]["last_seq"]

    async def next_sequence(self, filter: str, start: int) -> int | None:
        """Return the sequence of the first message at or after ``start`` that matches a filter, or None.

        :raises NoAnswer: if no answer came
        """
        stored = await self._get({"next_by_subj": filter, "seq": start, "no_hdr": True})
        return stored["seq"] if stored is not None else None

    async def next_message(self, filter: str, start: int) -> StoredMessage | None:
        """Return the first message at or after a sequence that matches a filter, or None.

        :raises NoAnswer: if no answer came
        """
        return _read_stored(await self._get({"next_by_subj": filter, "seq": start}))

    async def last_message(self, filter: str) -> StoredMessage | None:
        """Return the last message that matches a filter, or None.

        :raises NoAnswer: if no answer came
        """
        return _read_stored(await self._get({"last_by_subj": filter}))

    async def message(self, sequence: int) -> StoredMessage | None:
        """Return the message with a sequence, or None.

        :raises NoAnswer: if no answer came
        """
        return _read_stored(await self._get({"seq": sequence}))

    async def _get(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return one message of the stream, from its leader."""
        answer = await api(self.requests, f"STREAM.MSG.GET.{self.stream}", wanted)
        if "error" not in answer:
            return answer["message"]
        if answer["error"].get("err_code") == _NO_MESSAGE:
            return None
        raise NoAnswer(str(answer["error"]))

    async def copy_messages(
        self, filter: str, since: dt.datetime | None = None, *, after: int = 0
    ) -> AsyncGenerator[Copied]:
        """Yield the messages that match a filter, in order: those stored at ``since`` or later, or after a sequence.

        :raises NoAnswer: if no answer came
        """
        pending = 1
        while pending:
            # The server does not accept a sequence and a start time in one request.
            begin = {"seq": after + 1} if after or since is None else {"start_time": since.isoformat()}
            request = {"next_by_subj": filter, **begin, "batch": READ_BATCH, "max_bytes": READ_BYTES_MAX}
            messages, pending = await direct_get(self.nc, self.stream, request)
            if not messages:
                return
            for message in messages:
                headers = message.headers or {}
                after = int(headers["Nats-Sequence"])
                own = {name: value for name, value in headers.items() if name not in _HEADERS_OF_ANSWER}
                time = msgspec.convert(headers["Nats-Time-Stamp"], dt.datetime)
                yield Copied(after, headers["Nats-Subject"], time, own, message.data)


def is_of_type(message: StoredMessage, event_type: str) -> bool:
    """Whether a message is an event of this type."""
    return message.subject.endswith(f".{event_type}")


def _read_stored(found: Mapping[str, Any] | None) -> StoredMessage | None:
    if found is None:
        return None
    data = base64.b64decode(found.get("data", ""))
    return StoredMessage(found["seq"], found["subject"], _nanoseconds(found["time"]), decode_headers(found), data)


def _nanoseconds(time: str) -> int:
    """Return a time of the JetStream API, ``2026-01-02T03:04:05.123456789Z``, in nanoseconds since 1970."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    return int(dt.datetime.fromisoformat(f"{whole}+00:00").timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0"))


def decode_headers(stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a message of the JetStream API."""
    lines = base64.b64decode(stored.get("hdrs", "")).decode(errors="replace").split("\r\n")[1:]
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
