"""Copying: messages of the stream just as they are, with their headers and times, to be kept somewhere else."""

import datetime as dt
from collections.abc import AsyncGenerator, Mapping

import msgspec
from msgspec import Struct

from callboard.bus.asking import direct_get
from callboard.bus.jetstream import READ_BATCH, READ_BYTES_MAX, JetStreamLog

_TOLD = {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}
"""Headers of the answer, which the message itself has not."""


class Copied(Struct, frozen=True):
    """A message as the stream has it: where it stands there, and since when."""

    sequence: int
    subject: str
    time: dt.datetime
    headers: Mapping[str, str]
    data: bytes


async def copied(log: JetStreamLog, filter: str, since: dt.datetime | None = None) -> AsyncGenerator[Copied]:
    """Yield the messages that match a filter, in order, from an instant on, up to the last that there is.

    :raises NoAnswer: if no answer came
    """
    after, pending = 0, 1
    while pending:
        # Nobody is asked for a sequence and an instant at once.
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
