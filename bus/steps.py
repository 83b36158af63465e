"""Steps: work that is counted while it is done, so that it ends by name where it would take too long.

Engines that strangers give work to (expressions, schemas, patterns) run where everything else of a worker runs too, and
on the thread of its event loop nothing can interrupt them. So each counts what it does, in units that take about the
same time on one machine, and stops at a number that is the same on all: a run replays to the same end wherever it goes.
It stands on this floor because tools (actors) and interpreters (languages) both need it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

CHARS_PER_STEP = 64
"""How many characters of a text are one step, where they are copied, compared or looked through."""


class TooManySteps(Exception):
    """Some work would take more steps than it may. ``steps_max`` is how many it may take."""

    def __init__(self, steps_max: int) -> None:
        super().__init__(f"takes more than {steps_max} steps")
        self.steps_max = steps_max


class TakesLong(BaseException):
    """Work inside `at_once` takes more steps than it may take there. The caller repeats it on another thread.

    It derives from `BaseException`, so that the work itself never takes it for one of its own errors.
    """


_AT_ONCE: ContextVar[int | None] = ContextVar("at_once", default=None)


@contextmanager
def at_once(steps_max: int) -> Generator[None]:
    """Let each `Steps` that is made inside the block count at most so many steps.

    :raises TakesLong: from `Steps.take`, if the work needs more
    """
    token = _AT_ONCE.set(steps_max)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


class Steps:
    """How many steps some work may still take. Hot places count ``left`` down by themselves, and check it.

    Inside `at_once` ``left`` starts lower, and the rest is held back.
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
        """Count steps, before they are done.

        :raises TooManySteps: if they are too many
        :raises TakesLong: if they are too many inside `at_once`
        """
        self.left -= count
        if self.left < 0:
            if self._held_back:
                raise TakesLong
            raise TooManySteps(self.steps_max)

    def take_text(self, chars: int) -> None:
        """Count what it takes to go through so many characters once.

        :raises TooManySteps: if it is too much
        """
        self.take(1 + chars // CHARS_PER_STEP)
