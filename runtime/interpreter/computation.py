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


Caller = Callable[[Callable[[], Any]], Any]

_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


@contextmanager
def run_thread(caller: Caller) -> Generator[None]:
    """Inside the block, `call_on_run_thread` uses ``caller`` to call a function on the run's thread."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


def call_on_run_thread(function: Callable[[], T]) -> T:
    """Call a function on the thread that numbers the run's events, even from a computation on another thread."""
    caller = _CALLER.get()
    return function() if caller is None else caller(function)
