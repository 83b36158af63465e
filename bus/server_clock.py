"""The server's clock: the time that all workers agree on.

Deadlines outlive the worker that set them, and the server fires the alarms of parked runs. So the times of events are
the server's, however wrong the clock of a worker is. The difference is measured when a process connects and then every
few seconds. Below `IGNORED_S` it does not count.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.bus.asking import api
from callboard.bus.requests import Requests

IGNORED_S = 0.25
"""Differences below this are of the order of the time that a request takes, and are ignored."""


def local_now() -> dt.datetime:
    """Return the time by the clock of this machine."""
    return dt.datetime.now(dt.UTC)


class ServerClock:
    """Tells the server's time. ``ahead_s`` is how far the local clock is ahead of it, negative if it is behind."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._offset = dt.timedelta(0)

    def now(self) -> dt.datetime:
        """Return the time by the server's clock."""
        return local_now() - self._offset

    async def measure(self, requests: Requests, stream: str) -> Mapping[str, Any]:
        """Compare both clocks. Return what the server says of the stream, which has its time.

        :raises NoAnswer: if no answer came
        """
        asked = local_now()
        answer = await api(requests, f"STREAM.INFO.{stream}", {})
        if "ts" in answer:
            self._compare(answer, asked + (local_now() - asked) / 2)
        return answer

    def _compare(self, answer: Mapping[str, Any], middle: dt.datetime) -> None:
        self.ahead_s = (middle - msgspec.convert(answer["ts"], dt.datetime)).total_seconds()
        self._offset = dt.timedelta(seconds=self.ahead_s if abs(self.ahead_s) >= IGNORED_S else 0.0)
