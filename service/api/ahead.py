"""Ahead: what has been made ready for a reader and waits for them, bounded in number and in bytes."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Ahead(Generic[T]):
    """A queue with one reader, who iterates over it; ``size_of`` says how many bytes an item has.

    Where the bytes are used up nothing more fits, so there are as many and one item at most, be it as large as it will.
    """

    def __init__(self, items_max: int, bytes_max: int, size_of: Callable[[T], int]) -> None:
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._size_of = size_of
        self._items: deque[tuple[T, int]] = deque()
        self._news = anyio.Event()
        self._room = anyio.Event()
        self._ended = False
        self.bytes = 0
        """Bytes that wait."""

    def put_nowait(self, item: T) -> bool:
        """Leave an item if there is room; say whether it was left."""
        if self._ended or len(self._items) >= self._items_max or self.bytes >= self._bytes_max:
            return False
        size = self._size_of(item)
        self._items.append((item, size))
        self.bytes += size
        self._news.set()
        return True

    async def put(self, item: T) -> None:
        """Leave an item as soon as there is room; behind the end it is dropped."""
        while not self._ended and not self.put_nowait(item):
            if self._room.is_set():
                self._room = anyio.Event()
            await self._room.wait()

    def end(self) -> None:
        """Nothing comes any more: whoever reads comes to the end behind what waits."""
        self._ended = True
        self._news.set()
        self._room.set()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        item, size = self._items.popleft()
        self.bytes -= size
        self._room.set()
        return item
