"""The actor kernel: tasks that a supervisor spawns and watches.

When an actor fails, its supervisor restarts it within the limits of its policy. After that, the supervisor reports the
failure to its owner (escalation); the actor's siblings continue.

An actor is a task of the event loop with one cancel scope. A task group of anyio would make a handle, an event and
another scope for each, and most actors of a run last less than a millisecond. So one task of the group attends to all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
import anyio.abc
from msgspec import Struct


class Restart(Struct, frozen=True):
    """How often an actor may be restarted: ``most`` times within ``within_s`` seconds, ``pause_s`` apart."""

    most: int = 0
    within_s: float = 60.0
    pause_s: float = 0.1


NEVER = Restart()


class Child:
    """A spawned actor's handle."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope = anyio.CancelScope()
        self.has_ended = False
        self._ended: anyio.Event | None = None

    async def wait_ended(self) -> None:
        """Wait until the actor is gone."""
        if not self.has_ended:
            # Created only when a task waits: most actors need none.
            self._ended = self._ended or anyio.Event()
            await self._ended.wait()

    def end(self) -> None:
        self.has_ended = True
        if self._ended is not None:
            self._ended.set()

    def stop(self) -> None:
        """Cancel the actor; `wait_ended` returns when it is gone."""
        self.scope.cancel()


OnFailure = Callable[[str, Exception], None]
"""Takes the name of an actor that failed and is not restarted, and the error."""


class Stoppable(Protocol):
    """An actor, as seen by the one that has it spawned."""

    def stop(self) -> None:
        """Cancel the actor."""
        ...


Spawn = Callable[[str, Callable[[], Awaitable[None]]], Stoppable]
"""Starts an actor: its name, and what it does."""


def _nobody(_name: str, _error: Exception) -> None:
    """Ignore a failure: the supervisor has no actors left."""


class Supervisor:
    """Spawns actors and decides what their failures mean. An async context manager; leaving it waits for all actors."""

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._tasks: anyio.abc.TaskGroup | None = None
        self._children: dict[asyncio.Task[None], Child] = {}
        self._changed: asyncio.Future[None] | None = None
        self._errors: list[BaseException] = []
        self._is_closing = False

    async def __aenter__(self) -> Self:
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._is_closing = True
        self._note_change()
        try:
            return await self._tasks.__aexit__(kind, error, traceback)
        finally:
            # Drop the reference, so that the supervisor does not keep its owner alive.
            self._on_failure = _nobody

    def spawn(self, name: str, body: Callable[[], Awaitable[None]], restart: Restart = NEVER) -> Child:
        """Start an actor; ``body`` is called again at each restart."""
        if self._tasks is None:
            raise RuntimeError("a supervisor must be entered before it can spawn")
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
            self._tasks.start_soon(self._attend)
        child = Child(name)
        if self._tasks.cancel_scope.cancel_called:
            child.stop()
        task = asyncio.get_running_loop().create_task(self._watch(child, body, restart), name=name)
        self._children[task] = child
        task.add_done_callback(self._take_end)
        return child

    def stop_all(self) -> None:
        """Cancel every actor."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            for child in self._children.values():
                child.stop()

    async def _attend(self) -> None:
        """Last as long as the block and its actors, so that the task group waits for them; stop them with the group."""
        try:
            while (self._children or not self._is_closing) and not self._errors:
                await self._next_change()
        finally:
            # Also the group, so that an actor that is spawned from now on is stopped.
            self.stop_all()
            with anyio.CancelScope(shield=True):
                while self._children:
                    await self._next_change()
            if self._errors:
                raise BaseExceptionGroup("actors failed", self._errors)

    async def _next_change(self) -> None:
        """Wait until the last actor has ended, or one has failed, or the block is left."""
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _note_change(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _take_end(self, task: asyncio.Task[None]) -> None:
        del self._children[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors.append(error)
        if error is not None or not self._children:
            self._note_change()

    async def _watch(self, child: Child, body: Callable[[], Awaitable[None]], restart: Restart) -> None:
        restarts: list[float] = []
        try:
            with child.scope:
                while True:
                    try:
                        await body()
                        return
                    except Exception as error:
                        now = anyio.current_time()
                        restarts = [at for at in restarts if at >= now - restart.within_s]
                        if len(restarts) >= restart.most:
                            self._on_failure(child.name, error)
                            return
                        restarts.append(now)
                        await anyio.sleep(restart.pause_s)
        finally:
            child.end()
