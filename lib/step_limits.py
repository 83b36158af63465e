"""Steps: work that counts itself, so that it ends with an error when it takes too long.

Engines for untrusted input (expressions, schemas, patterns) run on the thread of a worker's event loop, where nothing
can interrupt them. So each engine counts its work in units that take about the same time on one computer. It stops at a
number that is the same on all computers, so that a replay has the same result everywhere. The module belongs to this
layer because tools (actors) and interpreters (languages) use it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

CHARS_PER_STEP = 64
"""Number of characters that count as one step when they are copied, compared or searched."""


class TooManySteps(Exception):
    """Some work would exceed its limit ``steps_max``."""

    def __init__(self, steps_max: int) -> None:
        super().__init__(f"takes more than {steps_max} steps")
        self.steps_max = steps_max


class TakesLong(BaseException):
    """Work inside `at_once` exceeds the limit of that block. The caller repeats it on another thread.

    It derives from `BaseException`, so that the work itself does not catch it as an ordinary error.
    """


_AT_ONCE: ContextVar[int | None] = ContextVar("at_once", default=None)


@contextmanager
def at_once(steps_max: int) -> Generator[None]:
    """Limit each `Steps` that is created inside the block to ``steps_max`` steps.

    :raises TakesLong: from `Steps.take`, if the work needs more
    """
    token = _AT_ONCE.set(steps_max)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


class Steps:
    """The remaining steps of some work. Performance-critical code decrements ``left`` directly, and checks it.

    Inside `at_once` ``left`` starts lower.
    """

    __slots__ = ("_held_back", "left", "steps_max")

    def __init__(self, steps_max: int) -> None:
        self.steps_max = steps_max
        self.left = steps_max
        self._held_back = False
        allowed = _AT_ONCE.get()
        if allowed is not None and allowed < steps_max:
            self.left, self._held_back = allowed, True

    def take(self, count: int) -> None:
        """Count steps before the work is done.

        :raises TooManySteps: if they exceed the limit
        :raises TakesLong: if they exceed the limit of `at_once`
        """
        self.left -= count
        if self.left < 0:
            if self._held_back:
                raise TakesLong
            raise TooManySteps(self.steps_max)

    def take_text(self, chars: int) -> None:
        """Count the steps for reading ``chars`` characters once.

        :raises TooManySteps: if they exceed the limit
        """
        self.take(1 + chars // CHARS_PER_STEP)
