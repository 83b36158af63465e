"""Turns: work on threads besides the event loop, and how long a thread holds the interpreter while others wait."""

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from threading import Lock

from anyio import CapacityLimiter, to_thread

TURN_S = 0.0005
"""Switch interval inside `quick_turns`. Python's default is ten times as long."""


class _Blocks:
    """The open blocks of `quick_turns` in all threads: the first one sets the interval, the last resets it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open = 0
        self._before = 0.0

    def enter(self) -> None:
        with self._lock:
            if not self._open:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(TURN_S)
            self._open += 1

    def leave(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                sys.setswitchinterval(self._before)


_BLOCKS = _Blocks()


@contextmanager
def quick_turns() -> Generator[None]:
    """Switch between threads more often for a block, so that the event loop does not wait for a busy thread."""
    _BLOCKS.enter()
    try:
        yield
    finally:
        _BLOCKS.leave()


Beside = Callable[[Callable[[], None]], Awaitable[None]]
"""Does some work while other tasks of the loop continue, and returns when it is done."""


async def on_a_thread(work: Callable[[], None], limiter: CapacityLimiter | None = None) -> None:
    """Do work on another thread. If the caller is cancelled, the thread continues and its result is ignored."""
    with quick_turns():
        await to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


async def on_the_loop(work: Callable[[], None]) -> None:
    """Do work immediately on the event loop, for simulations with virtual time, where threads cannot be awaited."""
    work()
