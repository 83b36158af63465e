"""Greenlets: coroutines in which plain functions can wait, too.

A graph has plain functions as nodes, tools and routers, in which a model is asked by ``model.invoke(…)``. In a workflow
that is an effect, and the event loop has to continue before its outcome comes. So the coroutine of each task runs in a
greenlet: `wait_for` leaves the greenlet in the middle of a plain function, and the task waits as with ``await``.
"""

from collections.abc import Awaitable, Coroutine, Generator
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from callboard.languages.python.errors import NotInWorkflow

T = TypeVar("T")

CLOSES_MAX = 1_000
"""How often a coroutine that is closed may await again."""


class Closed(BaseException):
    """Raised in a coroutine that is closed. Python's own `GeneratorExit` would leave the coroutines inside of one that
    awaits again half closed."""


class _Greenlet(greenlet):
    """A greenlet of a `Carried` coroutine."""


class Carried(Coroutine[Any, Any, T]):
    """A coroutine that runs in its own greenlet. Its frames are those of the coroutine that it carries."""

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self._coro = coro
        self._greenlet: _Greenlet | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        sent: Any = None
        while True:
            try:
                yielded = self.send(sent)
            except StopIteration as end:
                return end.value
            sent = yield yielded

    def send(self, value: Any, /) -> Any:
        if self._greenlet is None:
            self._greenlet = _Greenlet(_drive)
            # The same context, and not a copy: what the code sets in it lasts, as without a greenlet.
            self._greenlet.gr_context = getcurrent().gr_context
            return self._switch(self._greenlet, self._coro)
        return self._switch(self._greenlet, value)

    def throw(self, typ: Any, val: BaseException | object | None = None, tb: TracebackType | None = None, /) -> Any:
        if self._greenlet is None:
            self._coro.close()
        error = typ if isinstance(typ, BaseException) else val if isinstance(val, BaseException) else typ()
        if self._greenlet is None or self._greenlet.dead:
            raise error
        self._greenlet.parent = getcurrent()
        return self._settle(self._greenlet, self._greenlet.throw(error))

    def close(self) -> None:
        """End the coroutine. LangGraph awaits callbacks in handlers of every exception; each await there ends too."""
        if self._greenlet is None:
            self._coro.close()
            return
        for _ in range(CLOSES_MAX):
            if self._greenlet.dead:
                return
            with suppress(Exception, Closed, GeneratorExit):
                self.throw(Closed())

    def _switch(self, of: _Greenlet, value: Any) -> Any:
        if of.dead:
            raise RuntimeError("cannot reuse a coroutine that has ended")
        of.parent = getcurrent()
        return self._settle(of, of.switch(value))

    def _settle(self, of: _Greenlet, result: Any) -> Any:
        if of.dead:
            raise StopIteration(result)
        return result

    @property
    def cr_await(self) -> Any:
        return self._coro.cr_await  # type: ignore[attr-defined]  # pyright: ignore

    @property
    def cr_frame(self) -> Any:
        return self._coro.cr_frame  # type: ignore[attr-defined]  # pyright: ignore

    @property
    def cr_running(self) -> bool:
        return self._coro.cr_running  # type: ignore[attr-defined]  # pyright: ignore


def wait_for(awaitable: Awaitable[T], what: str) -> T:
    """Wait in a plain function, which a task of the workflow has called; ``what`` names the call in an error.

    :raises NotInWorkflow: if the caller cannot wait: it runs in another way than by a task
    """
    current = getcurrent()
    if not isinstance(current, _Greenlet):
        if isinstance(awaitable, Coroutine):
            awaitable.close()  # pyright: ignore[reportUnknownMemberType]
        raise NotInWorkflow(f"{what} cannot wait here: await its asynchronous form")
    return _drive(awaitable.__await__())


def _drive(coro: Any) -> Any:
    """Run a coroutine to its end. Each object that it yields is passed to the greenlet that has switched to this one;
    the object that comes back is sent to the coroutine."""
    step, given = coro.send, None
    while True:
        try:
            yielded = step(given)
        except StopIteration as end:
            return end.value
        try:
            outer = getcurrent().parent
            assert outer is not None, "only the main greenlet has none"
            given = outer.switch(yielded)
            step = coro.send
        except BaseException as error:
            step, given = coro.throw, error
