"""Places: how many runs are active at once; who is told to stop need not wait for one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class Slots:
    """So many places, given out in the order in which they were asked for."""

    def __init__(self, places: int) -> None:
        self._limiter = anyio.CapacityLimiter(places)

    @asynccontextmanager
    async def one(self, urgent: anyio.Event) -> AsyncGenerator[None]:
        """Hold a place for the length of the block; what is ``urgent``, or becomes so while it waits, goes without."""
        borrower = object()
        try:
            self._limiter.acquire_on_behalf_of_nowait(borrower)
            taken = True
        except anyio.WouldBlock:
            taken = await self._wait(urgent, borrower)
        try:
            yield
        finally:
            if taken:
                self._limiter.release_on_behalf_of(borrower)

    async def _wait(self, urgent: anyio.Event, borrower: object) -> bool:
        """Wait for a place, or until it is urgent; say whether there is a place."""
        taken = False
        async with anyio.create_task_group() as tasks:

            async def take() -> None:
                nonlocal taken
                await self._limiter.acquire_on_behalf_of(borrower)
                taken = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(take)
            await urgent.wait()
            tasks.cancel_scope.cancel()
        return taken
