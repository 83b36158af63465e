"""The actor kernel: a task with a mailbox, spawned and watched by a supervisor.


An actor handles one message after the other. Its mailbox is bounded: a sender that may wait uses `Mailbox.put`, any
other sender uses `Mailbox.put_nowait` and gets `MailboxFull`. When an actor fails, its supervisor restarts it within
the limits of its policy. After that, the supervisor reports the failure to its owner (escalation); the actor's siblings
continue.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
import anyio.abc
from msgspec import Struct

M = TypeVar("M")

MAILBOX_MESSAGES_MAX = 1024


class MailboxFull(Exception):
    """The actor has more messages waiting than it may hold."""


class MailboxClosed(Exception):
    """The actor has ended: its mailbox has no reader any longer."""


class Mailbox(Generic[M]):
    """A bounded queue of messages with one reader."""

    def __init__(self, messages_max: int = MAILBOX_MESSAGES_MAX) -> None:
        self._messages: deque[M] = deque()
        self._messages_max = messages_max
        self._closed = False
        # An event is created only when a task waits: most mailboxes of short-lived actors never need one.
        self._arrived: anyio.Event | None = None
        self._room: anyio.Event | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def put_nowait(self, message: M) -> None:
        """Leave a message.

        :raises MailboxFull: if the mailbox holds its maximum
        :raises MailboxClosed: if the actor has ended
        """
        if self._closed:
            raise MailboxClosed
        if len(self._messages) >= self._messages_max:
            raise MailboxFull
        self._messages.append(message)
        _set(self._arrived)

    async def put(self, message: M) -> None:
        """Leave a message, waiting for room.

        :raises MailboxClosed: if the actor has ended
        """
        while True:
            try:
                return self.put_nowait(message)
            except MailboxFull:
                # All waiting senders share one event: if each created a new one, the others would wait forever.
                if self._room is None or self._room.is_set():
                    self._room = anyio.Event()
                await self._room.wait()

    async def get(self) -> M:
        """Take the oldest message, waiting for one.

        :raises MailboxClosed: if the mailbox was closed and is empty
        """
        while not self._messages:
            if self._closed:
                raise MailboxClosed
            self._arrived = anyio.Event()
            await self._arrived.wait()
        message = self._messages.popleft()
        _set(self._room)
        return message

    def close(self) -> None:
        """Take no more messages; those left can still be read."""
        self._closed = True
        _set(self._arrived)
        _set(self._room)


def _set(event: anyio.Event | None) -> None:
    if event is not None:
        event.set()


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
            self._ended = self._ended or anyio.Event()
            await self._ended.wait()

    def end(self) -> None:
        self.has_ended = True
        _set(self._ended)

    def stop(self) -> None:
        """Cancel the actor; `wait_ended` returns when it is gone."""
        self.scope.cancel()


OnFailure = Callable[[str, Exception], None]
"""Takes the name of an actor that failed and is not restarted, and the error."""

Spawn = Callable[[str, Callable[[], Awaitable[None]]], object]
"""Starts an actor: its name, and what it does."""


def _nobody(_name: str, _error: Exception) -> None:
    """Ignore a failure: the supervisor has no actors left."""


class Supervisor:
    """Spawns actors and decides what their failures mean. An async context manager; leaving it waits for all actors."""

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        try:
            return await self._tasks.__aexit__(kind, error, traceback)
        finally:
            # Drop the reference, so that the supervisor does not keep its owner alive.
            self._on_failure = _nobody

    def spawn(self, name: str, body: Callable[[], Awaitable[None]], restart: Restart = NEVER) -> Child:
        """Start an actor; ``body`` is called again at each restart."""
        if self._tasks is None:
            raise RuntimeError("a supervisor must be entered before it can spawn")
        child = Child(name)
        self._tasks.start_soon(self._watch, child, body, restart, name=name)
        return child

    def stop_all(self) -> None:
        """Cancel every actor."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

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
