"""Asks a service from a thread; the thread learns when no caller waits for the answer any longer."""

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from callboard.actors.skills.service import STOPPED

T = TypeVar("T")


async def answer_of(ask: Callable[[], T], turns: anyio.CapacityLimiter) -> T:
    """Call ``ask`` in a thread. After a cancellation, the thread may finish its request, and starts no other."""
    stopped = threading.Event()

    def ask_until_stopped() -> T:
        STOPPED.set(stopped)  # in the thread's own context
        return ask()

    try:
        return await anyio.to_thread.run_sync(ask_until_stopped, limiter=turns, abandon_on_cancel=True)
    finally:
        stopped.set()
