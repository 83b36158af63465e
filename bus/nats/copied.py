"""A copy of a message of the stream, as archives and segments contain it."""

import datetime as dt
from collections.abc import Mapping

from msgspec import Struct


class Copied(Struct, frozen=True):
    """A message of the stream, with its sequence and the time at which it was stored."""

    sequence: int
    subject: str
    time: dt.datetime
    headers: Mapping[str, str]
    data: bytes
