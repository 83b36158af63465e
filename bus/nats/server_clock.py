"""The server's clock: the common time of all workers.

A deadline can outlive the worker that set it, and the server fires the alarms of parked runs. So the times of events
are those of the server's clock, even if a worker's clock is wrong. A process measures the difference when it connects
and then every few seconds. A difference below `IGNORED_S` is ignored. An answer that took longer than
`ROUND_TRIP_MAX_S` says little about the clocks, so it changes nothing.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec

from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.requests import Requests

IGNORED_S = 0.25
"""Smaller differences are ignored, because they are similar to the duration of a request."""


ROUND_TRIP_MAX_S = 2 * IGNORED_S
"""Longest round trip of a measurement. The server reads its clock at an unknown moment of it, so the error is up to
half of it."""


class _TimedRequests:
    """Requests that are timed one by one: `again` may repeat one for a long time, while a leader is elected."""

    def __init__(self, requests: Requests) -> None:
        self.nc = requests.nc
        self._requests = requests
        self.middle = local_now()
        self.round_trip_s = 0.0

    async def request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, *, hurry: bool = False
    ) -> bytes:
        began, asked = anyio.current_time(), local_now()
        answer = await self._requests.request(subject, data, headers, hurry=hurry)
        self.round_trip_s = anyio.current_time() - began
        self.middle = asked + dt.timedelta(seconds=self.round_trip_s / 2)
        return answer


def local_now() -> dt.datetime:
    """Return the time by the clock of this machine."""
    return dt.datetime.now(dt.UTC)


class ServerClock:
    """Computes the server's time. ``ahead_s`` is how far the local clock is ahead of it; negative if it is slow."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._offset = dt.timedelta(0)

    def now(self) -> dt.datetime:
        """Return the time by the server's clock."""
        return dt.datetime.now(dt.UTC) - self._offset

    async def measure(self, requests: Requests, stream: str) -> Mapping[str, Any]:
        """Compare both clocks. Return the server's info about the stream, which contains its time.

        :raises NoAnswer: if no answer came
        """
        timed = _TimedRequests(requests)
        answer = await api(timed, f"STREAM.INFO.{stream}", {})
        if "ts" in answer and timed.round_trip_s <= ROUND_TRIP_MAX_S:
            self._compare(answer, timed.middle)
        return answer

    def _compare(self, answer: Mapping[str, Any], middle: dt.datetime) -> None:
        self.ahead_s = (middle - msgspec.convert(answer["ts"], dt.datetime)).total_seconds()
        self._offset = dt.timedelta(seconds=self.ahead_s if abs(self.ahead_s) >= IGNORED_S else 0.0)
