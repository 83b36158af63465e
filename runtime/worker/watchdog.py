"""The watchdog: says when a worker's event loop is held, and what holds it.

Nothing should: what runs on the loop is bounded, or done piece by piece. If something does all the same, whoever runs
the worker has to know what, while it lasts. So this is a thread beside the loop, which looks for its sign of life.
"""

import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic

import anyio
import structlog

logger = structlog.get_logger(__name__)

HELD_S = 1.0
"""How long the loop may be held before that is told."""

BEAT_S = 0.25
"""How often the loop gives a sign of life, and how often somebody looks for it."""

FRAMES_TOLD_MAX = 25
"""How much of the stack of what holds the loop is told: the innermost frames."""


class Watchdog:
    """Watches one loop. ``doing`` says what is known of what the loop is at, such as a run's id."""

    def __init__(self, doing: Callable[[], str], *, held_s: float = HELD_S, beat_s: float = BEAT_S) -> None:
        self._doing = doing
        self._held_s = held_s
        self._beat_s = beat_s
        self._thread_id = 0
        self._beaten_at = monotonic()
        self._told_of: float | None = None

    async def run(self) -> None:
        """Watch the loop until cancelled."""
        self._thread_id = threading.get_ident()
        self._beaten_at = monotonic()
        over = threading.Event()
        threading.Thread(target=self._watch, args=(over,), name="watchdog", daemon=True).start()
        try:
            await self._beat()
        finally:
            over.set()

    async def _beat(self) -> None:
        while True:
            now = monotonic()
            if self._told_of == self._beaten_at:
                logger.warning("loop.released", held_s=round(now - self._beaten_at, 2))
            self._beaten_at = now
            await anyio.sleep(self._beat_s)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(self._beat_s):
            beaten_at = self._beaten_at
            held_s = monotonic() - beaten_at
            if held_s > self._held_s + self._beat_s and self._told_of != beaten_at:
                self._told_of = beaten_at
                logger.warning("loop.held", held_s=round(held_s, 2), run=self._doing(), at=self._stack())

    def _stack(self) -> list[str]:
        frame = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage] - documented
        if frame is None:
            return []
        frames = traceback.extract_stack(frame)[-FRAMES_TOLD_MAX:]
        return [f"{one.filename}:{one.lineno} {one.name}" for one in frames]
