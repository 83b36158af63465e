"""Computations: long calculations of an interpreter, which may run on a thread other than the event loop's."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Computation:
    """Long work that a coroutine awaits and that does not use the driver.

    Its coroutine is resumed before any other that is ready.
    """

    __slots__ = ("_error", "_value", "_work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work
        self._value: Any = None
        self._error: Exception | None = None

    def __await__(self) -> Generator["Computation", None, Any]:
        yield self
        return self.outcome()

    def outcome(self) -> Any:
        """Return the result of the work, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._value

    def carry_out(self) -> None:
        """Do the work, once; later calls do nothing. May be called on any thread."""
        work, self._work = self._work, None
        if work is not None:
            try:
                self._value = work()
            except Exception as error:
                self._error = error


Home = Callable[[Callable[[], Any]], Any]

_HOME: ContextVar[Home | None] = ContextVar("home", default=None)


@contextmanager
def at_home(home: Home) -> Generator[None]:
    """Set the ``home`` of `done_at_home` inside the block: it calls a function on the thread of the run's loop."""
    token = _HOME.set(home)
    try:
        yield
    finally:
        _HOME.reset(token)


def done_at_home(function: Callable[[], T]) -> T:
    """Call a function on the thread that numbers the run's events, even from a computation on another thread."""
    home = _HOME.get()
    return function() if home is None else home(function)
