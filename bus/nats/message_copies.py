"""Copies of the stream's messages, unchanged, with their headers and times, for storing them elsewhere."""

import datetime as dt
from collections.abc import AsyncGenerator

import msgspec

from callboard.bus.nats.copied import Copied
from callboard.bus.nats.jetstream import READ_BATCH, READ_BYTES_MAX, JetStreamLog
from callboard.bus.nats.jetstream_api import direct_get

_TOLD = {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}
"""Headers that the server adds to its answer, and that the stored message does not have."""


async def copy_messages(
    log: JetStreamLog, filter: str, since: dt.datetime | None = None, *, after: int = 0
) -> AsyncGenerator[Copied]:
    """Yield the stored messages that match a filter, in order: those stored at ``since`` or later, or after a sequence.

    :raises NoAnswer: if no answer came
    """
    pending = 1
    while pending:
        # The server does not accept a sequence and a start time in one request.
        begins = {"seq": after + 1} if after or since is None else {"start_time": since.isoformat()}
        request = {"next_by_subj": filter, **begins, "batch": READ_BATCH, "max_bytes": READ_BYTES_MAX}
        messages, pending = await direct_get(log.nc, log.stream, request)
        if not messages:
            return
        for message in messages:
            told = message.headers or {}
            after = int(told["Nats-Sequence"])
            own = {name: value for name, value in told.items() if name not in _TOLD}
            time = msgspec.convert(told["Nats-Time-Stamp"], dt.datetime)
            yield Copied(after, told["Nats-Subject"], time, own, message.data)
