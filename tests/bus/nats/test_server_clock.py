"""The server's clock: what a process concludes from its answers."""

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from callboard.bus.nats.client import NO_LEADER
from callboard.bus.nats.server_clock import ROUND_TRIP_MAX_S, ServerClock
from callboard.testing.virtual_time import VIRTUAL

HOUR = dt.timedelta(hours=1)


class Server:
    """A server whose clock is ``ahead``, and which answers after these times; None is the answer without a leader."""

    class nc:  # noqa: N801
        @staticmethod
        def js(verb: str) -> str:
            return verb

    def __init__(self, answers: Sequence[float | None], ahead: dt.timedelta) -> None:
        self._answers = list(answers)
        self._ahead = ahead

    async def request(self, subject: str, data: bytes, headers: Any = None, *, hurry: bool = False) -> bytes:
        after_s = self._answers.pop(0)
        if after_s is None:
            await anyio.sleep(1)
            return json.dumps({"error": {"err_code": next(iter(NO_LEADER)), "description": "no leader"}}).encode()
        read = dt.datetime.now(dt.UTC) + self._ahead
        await anyio.sleep(after_s)
        return json.dumps({"ts": read.isoformat(), "config": {}}).encode()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


async def measure(clock: ServerClock, *answers: float | None, ahead: dt.timedelta = HOUR) -> float:
    await clock.measure(Server(answers, ahead), "CB")  # pyright: ignore[reportArgumentType]
    return clock.ahead_s


async def test_a_slow_answer_does_not_change_the_clock() -> None:
    clock = ServerClock()
    assert await measure(clock, 2 * ROUND_TRIP_MAX_S) == 0.0
    assert await measure(clock, 0.0) == pytest.approx(-3600, abs=5)
    assert await measure(clock, 2 * ROUND_TRIP_MAX_S, ahead=dt.timedelta(0)) == pytest.approx(-3600, abs=5)
    assert (clock.now() - dt.datetime.now(dt.UTC)) == pytest.approx(HOUR, abs=dt.timedelta(seconds=5))


async def test_only_the_last_of_several_attempts_is_timed() -> None:
    """While a leader is elected, the request is repeated for seconds."""
    assert await measure(ServerClock(), None, None, None, 0.0) == pytest.approx(-3600, abs=5)
