"""A queue of items that are ready before their reader asks, bounded in number and in bytes."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """A queue with one reader, which iterates over it; ``size_of`` returns the size of an item in bytes.

    The queue takes an item of any size as long as it holds fewer than ``bytes_max`` bytes. So the last item may exceed
    the bound.
    """

    def __init__(self, items_max: int, bytes_max: int, size_of: Callable[[T], int]) -> None:
        self._items_max = items_max
        self._bytes_max = bytes_max
        self._size_of = size_of
        self._items: deque[tuple[T, int]] = deque()
        self._item_added = anyio.Event()
        self._space_freed = anyio.Event()
        self._ended = False
        self.bytes = 0
        """Size of all queued items in bytes."""

    def put_nowait(self, item: T) -> bool:
        """Add an item if the queue is not full. Return whether it was added."""
        if self._ended or len(self._items) >= self._items_max or self.bytes >= self._bytes_max:
            return False
        size = self._size_of(item)
        self._items.append((item, size))
        self.bytes += size
        self._item_added.set()
        return True

    async def put(self, item: T) -> None:
        """Add an item as soon as the queue has room. Drop it if the queue has ended."""
        while not self._ended and not self.put_nowait(item):
            if self._space_freed.is_set():
                self._space_freed = anyio.Event()
            await self._space_freed.wait()

    def end(self) -> None:
        """Accept no more items. The reader still gets the queued ones, and then stops."""
        self._ended = True
        self._item_added.set()
        self._space_freed.set()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._item_added = anyio.Event()
            await self._item_added.wait()
        item, size = self._items.popleft()
        self.bytes -= size
        self._space_freed.set()
        return item
