"""Turns: work on threads beside the loop, and how long a thread keeps Python while another one wants it."""

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from threading import Lock

from anyio import CapacityLimiter, to_thread

TURN_S = 0.0005
"""How long with `quick_turns`; Python's own default is ten times that."""


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
    """Have threads take turns quickly for a block, so that the loop does not wait for one with much to do."""
    _BLOCKS.enter()
    try:
        yield
    finally:
        _BLOCKS.leave()


Beside = Callable[[Callable[[], None]], Awaitable[None]]
"""Does some work, and returns when it is done; other tasks of the loop go on meanwhile."""


async def on_a_thread(work: Callable[[], None], limiter: CapacityLimiter | None = None) -> None:
    """Do work on a thread beside the loop. If the caller is cancelled, the thread ends unheeded."""
    with quick_turns():
        await to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)


async def on_the_loop(work: Callable[[], None]) -> None:
    """Do work at once: where time is virtual, no thread is waited for."""
    work()
