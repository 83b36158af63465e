"""A collection: what a coroutine has spawned, taken up as it settles, in the order of the log.

A language that schedules coroutines of its own has one coroutine on the stage. It spawns every effect beside itself and
takes up one settled task after the other. Waiting for the first of many tasks again and again would look at all of them
each time; a collection is told by each task once.
"""

from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Any

from callboard.bus.effects import Failure
from callboard.languages.language import Cancelled
from callboard.runtime.interpreter.driver import Driver, Shield, Task, Wait

CLOSED = Failure(code="closed", message="nobody takes up what settles any more", type="cancellation")


class Collection(AbstractAsyncContextManager["Collection"]):
    """`callboard.languages.language.Collection`: an async context manager, in which its task is not interrupted.

    Inside the block what is spawned is out of the reach of an interruption too. A cancellation of the task is told
    once, by `next`, which returns it; what follows from it is up to the task.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._settled: deque[Task[Any]] = deque()
        self._wait: Wait | None = None
        self._shield: Shield
        self._sentry: Task[None]

    async def __aenter__(self) -> "Collection":
        await self._driver.checkpoint()
        # It is spawned outside of the shield, so that an interruption of the task reaches it.
        self._sentry = self._driver.spawn(self._stand())
        self.add(self._sentry)
        self._shield = self._driver.shield()
        await self._shield.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._driver.check_alive()
        self._driver.cancel(self._sentry, CLOSED, self)
        await self._driver.join(self._sentry)
        await self._shield.__aexit__(None, None, None)

    async def _stand(self) -> None:
        await Wait(self._driver)

    def add(self, task: Any) -> None:
        """Have `next` return a task once it has settled."""

        def settled() -> None:
            self._settled.append(task)
            wait, self._wait = self._wait, None
            if wait is not None:
                wait.wake()

        task.on_settled(settled)

    async def next(self) -> Task[Any] | Cancelled:
        """Return the task that has settled next, or, once, the cancellation of the task that has the collection."""
        if not self._settled:
            self._wait = Wait(self._driver)
            await self._wait
        task = self._settled.popleft()
        if task is self._sentry:
            interruption = self._driver.current.interruption
            assert interruption is not None, "nobody else interrupts the sentry"
            return interruption
        return task
