"""Virtual time: an event loop that jumps to its next timer and fails if it has none, and a clock that follows it."""

import asyncio
import datetime as dt
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

BEGINNING = dt.datetime(2026, 11, 20, 11, 0, tzinfo=dt.UTC)


class NothingWillHappen(Exception):
    """Raised for a deadlock: all tasks wait, and no timer is set."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that never waits. It adds the waiting time to the virtual time instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise NothingWillHappen
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps from timer to timer."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # pyright: ignore
        """Call the function here: the clock would not wait for another thread."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


VIRTUAL = {"loop_factory": VirtualLoop}
"""The options of anyio's asyncio backend."""


def simulate(body: Callable[[], Awaitable[Any]]) -> None:
    """Run a coroutine function in virtual time."""
    anyio.run(body, backend="asyncio", backend_options=VIRTUAL)


class VirtualClock:
    """The time of day, which advances with the virtual loop and can be set."""

    def __init__(self, start: dt.datetime = BEGINNING) -> None:
        self._start = start
        self._zero: float | None = None

    def __call__(self) -> dt.datetime:
        # Also a callback of a workflow asks for the time, in no task, by which anyio finds its backend.
        now = asyncio.get_running_loop().time()
        if self._zero is None:
            self._zero = now
        return self._start + dt.timedelta(seconds=now - self._zero)

    def set(self, instant: dt.datetime) -> None:
        self._start, self._zero = instant, None
