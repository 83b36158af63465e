"""A collection: the tasks that a coroutine has spawned, returned one by one as they settle, in the order of the log.

A language with its own scheduler has a single coroutine on the stage. That coroutine spawns every effect as a task and
handles the settled tasks one after the other. Waiting for the first of many tasks would check all of them each time;
each task of a collection notifies it once.

While a pause holds the run, the collection keeps the settled tasks, so that the coroutine does not continue. Effects
that have begun are completed.
"""

from collections import deque
from contextlib import AbstractAsyncContextManager
from typing import Any

from callboard.bus.effects import Failure
from callboard.languages.language import Cancelled
from callboard.runtime.interpreter.driver import Driver, DriverTask, Shield, Wait
from callboard.runtime.interpreter.waits import Waits

CLOSED = Failure(code="closed", message="the collection was closed", type="cancellation")


class StageCollection(AbstractAsyncContextManager["StageCollection"]):
    """`callboard.languages.language.Collection`: an async context manager in which its task is not interrupted.

    Tasks spawned inside the block are not interrupted either. If the task is cancelled, `next` returns the cancellation
    once, and the task decides what to do about it.
    """

    def __init__(self, driver: Driver, waits: Waits | None = None) -> None:
        self._driver = driver
        self._waits = waits
        self._settled: deque[DriverTask[Any]] = deque()
        self._wait: Wait | None = None
        self._shield: Shield
        self._sentry: DriverTask[None]

    async def __aenter__(self) -> "StageCollection":
        await self._driver.checkpoint()
        # Spawned outside the shield, so that an interruption of the task reaches the sentry.
        self._sentry = self._driver.spawn(self._wait_forever())
        self.add(self._sentry)
        self._shield = self._driver.shield()
        await self._shield.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._driver.check_alive()
        self._driver.cancel(self._sentry, CLOSED, self)
        await self._driver.join(self._sentry)
        await self._shield.__aexit__(None, None, None)

    async def _wait_forever(self) -> None:
        await Wait(self._driver)

    def add(self, task: Any) -> None:
        """Have `next` return a task once it has settled."""

        def enqueue() -> None:
            self._settled.append(task)
            wait, self._wait = self._wait, None
            if wait is not None:
                wait.wake()

        task.on_settled(enqueue)

    async def next(self) -> DriverTask[Any] | Cancelled:
        """Return the next settled task, or, once, the cancellation of the task that owns the collection.

        A paused run, if it holds every effect, gets neither until it is resumed or cancelled. Tasks that settled during
        the pause are then returned in the order of the log, after a cancellation.
        """
        if not self._settled:
            self._wait = Wait(self._driver)
            await self._wait
        if self._waits is not None and self._waits.is_holding:
            await self._waits.until_released()
            if self._sentry in self._settled:
                self._settled.remove(self._sentry)
                self._settled.appendleft(self._sentry)
        task = self._settled.popleft()
        if task is self._sentry:
            interruption = self._driver.current.interruption
            assert interruption is not None, "only an interruption of the task settles the sentry"
            return interruption
        return task
