"""Waiting: functions of asyncio whose versions create different tasks and timers, in one form for all versions.

The addresses of effects depend on the tasks and timers that a workflow creates. `asyncio.wait_for` of Python 3.11 makes
a task for its awaitable, that of Python 3.12 does not; `asyncio.as_completed` sets its timer early or late. With
these forms a run continues with another version of Python.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def wait_for(fut: Awaitable[T], timeout: float | None) -> T:
    """Wait for an awaitable, at most ``timeout`` seconds, as `asyncio.wait_for` of Python 3.12 does.

    :raises TimeoutError: if it takes longer; it has been cancelled then
    """
    if timeout is not None and timeout <= 0:
        future = asyncio.ensure_future(fut)
        if future.done():
            return future.result()
        future.cancel()
        await asyncio.wait([future])
        try:
            return future.result()
        except asyncio.CancelledError as error:
            raise TimeoutError from error
    async with asyncio.timeout(timeout):
        return await fut


class AsCompleted:
    """The iterator of `as_completed`: both a plain one, of coroutines, and an asynchronous one, of futures."""

    def __init__(self, futures: Iterable["asyncio.Future[Any]"], timeout: float | None) -> None:
        self._done: asyncio.Queue[asyncio.Future[Any] | None] = asyncio.Queue()
        self._open = list(futures)
        self._left = len(self._open)
        self._timer: asyncio.TimerHandle | None = None
        for future in self._open:
            future.add_done_callback(self._complete)
        if self._open and timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._expire)

    def __iter__(self) -> "AsCompleted":
        return self

    def __next__(self) -> Coroutine[Any, Any, Any]:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._result_of_next()

    def __aiter__(self) -> "AsCompleted":
        return self

    async def __anext__(self) -> "asyncio.Future[Any]":
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next()

    async def _result_of_next(self) -> Any:
        return (await self._next()).result()

    async def _next(self) -> "asyncio.Future[Any]":
        future = await self._done.get()
        if future is None:
            raise TimeoutError
        return future

    def _complete(self, future: "asyncio.Future[Any]") -> None:
        if future not in self._open:
            return  # the time is over
        self._open.remove(future)
        self._done.put_nowait(future)
        if not self._open and self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        for future in self._open:
            future.remove_done_callback(self._complete)
            self._done.put_nowait(None)
        self._open.clear()


def as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> AsCompleted:
    """Iterate over awaitables as they complete, as `asyncio.as_completed` does. They begin in their order.

    :raises TypeError: if ``fs`` is an awaitable itself
    """
    if asyncio.isfuture(fs) or asyncio.iscoroutine(fs):
        raise TypeError(f"expects an iterable of awaitables, not {type(fs).__name__}")
    return AsCompleted([asyncio.ensure_future(one) for one in dict.fromkeys(fs)], timeout)
