"""Slots: a limit on the number of active runs. A run that must stop does not wait for a slot."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class Slots:
    """A number of slots, assigned in the order of the requests."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._limiter = anyio.CapacityLimiter(places)

    @asynccontextmanager
    async def one(self, urgent: anyio.Event) -> AsyncGenerator[None]:
        """Hold a slot during the block. No slot is needed if ``urgent`` is set, before or during the wait."""
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
        """Wait for a slot or for ``urgent``; return whether a slot was taken."""
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
