"""The watchdog: logs when code blocks a worker's event loop, with the stack of that code.

Code on the loop is bounded or runs in pieces. If it blocks the loop all the same, the operator must see the cause while
the block lasts. So the watchdog is a thread beside the loop, which checks that the loop still runs its timer.

The thread never reads the frames of the loop's thread, because that can crash the process on Python 3.11. It sends a
signal instead, and the loop's thread records its stack in the signal handler, between two bytecodes. The handler cannot
run during code that is not Python, so the stack is missing then; it is logged as soon as the code has returned.

While the loop is blocked, the handler also lets languages interrupt hosted code (`callboard.languages.hosting`).
"""

import signal
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

import anyio
import structlog

from callboard.languages.hosting import INTERRUPTS

logger = structlog.get_logger(__name__)

HELD_S = 1.0
"""How long the loop may be blocked before that is logged."""

BEAT_S = 0.25
"""How often the loop runs its timer, and how often the thread checks it."""

FRAMES_LOGGED_MAX = 25
"""Maximum number of innermost frames of the stack that are logged."""

STACK_WAIT_S = 0.5
"""How long the thread waits for the stack."""

STACK_SIGNAL = signal.SIGURG
"""The signal that requests the stack. It is ignored by default, so it is harmless if no handler is installed."""


class Watchdog:
    """Watches one loop. ``doing`` returns the current work of the loop, such as a run's id."""

    def __init__(self, doing: Callable[[], str], *, held_s: float = HELD_S, beat_s: float = BEAT_S) -> None:
        self._doing = doing
        self._held_s = held_s
        self._beat_s = beat_s
        self._thread_id = 0
        self._beaten_at = monotonic()
        self._logged: float | None = None
        self._stack: list[str] | None = []
        self._interrupted: tuple[str, list[str]] | None = None
        """The run whose code was interrupted, and the stack of that code."""

    async def run(self) -> None:
        """Watch the loop until cancelled."""
        self._thread_id = threading.get_ident()
        self._beaten_at = monotonic()
        over = threading.Event()
        with self._handler() as installed:
            thread = threading.Thread(target=self._watch, args=(over, installed), name="watchdog", daemon=True)
            thread.start()
            try:
                await self._beat()
            finally:
                over.set()

    async def _beat(self) -> None:
        while True:
            now = monotonic()
            if self._logged == self._beaten_at:
                logger.warning("loop.released", held_s=round(now - self._beaten_at, 2), at=self._stack or [])
            interrupted, self._interrupted = self._interrupted, None
            if interrupted is not None:
                run, stack = interrupted
                logger.warning("loop.interrupted", held_s=round(now - self._beaten_at, 2), run=run, at=stack)
            self._beaten_at = now
            await anyio.sleep(self._beat_s)

    def _watch(self, over: threading.Event, installed: bool) -> None:
        while not over.wait(self._beat_s):
            beaten_at = self._beaten_at
            held_s = monotonic() - beaten_at
            if held_s > self._held_s + self._beat_s and self._logged != beaten_at:
                self._logged = beaten_at
                stack = self._stack_of_loop(over) if installed else []
                logger.warning("loop.held", held_s=round(held_s, 2), run=self._doing(), at=stack)
            elif held_s > self._held_s / 2 and installed and INTERRUPTS:
                signal.pthread_kill(self._thread_id, STACK_SIGNAL)

    # -- the stack ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _handler(self) -> Generator[bool]:
        """Install the signal handler; yield whether that was possible.

        It is possible only in the main thread and if the program does not use the signal otherwise.
        """
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(STACK_SIGNAL) is not signal.SIG_DFL:
            yield False
            return
        signal.signal(STACK_SIGNAL, self._note_stack)
        try:
            yield True
        finally:
            signal.signal(STACK_SIGNAL, signal.SIG_DFL)

    def _note_stack(self, _number: int, frame: FrameType | None) -> None:
        # Nothing is logged here: the signal may have interrupted a logger that holds its lock.
        if self._stack is None:
            self._stack = _describe_stack(frame)
        for interrupt in INTERRUPTS:
            try:
                interrupt(frame)
            except BaseException:
                self._interrupted = self._doing(), _describe_stack(frame)
                raise

    def _stack_of_loop(self, over: threading.Event) -> list[str]:
        """Ask the loop's thread for its stack; empty if it does not run Python code."""
        self._stack = None
        signal.pthread_kill(self._thread_id, STACK_SIGNAL)
        deadline = monotonic() + STACK_WAIT_S
        while self._stack is None and monotonic() < deadline and not over.wait(0.01):
            pass
        return self._stack or []


def _describe_stack(frame: FrameType | None) -> list[str]:
    frames = traceback.extract_stack(frame)[-FRAMES_LOGGED_MAX:]
    return [f"{one.filename}:{one.lineno} {one.name}" for one in frames]
