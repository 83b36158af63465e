"""Sessions with MCP servers: one for each run of an agent, open in the worker as long as the run is in its memory.

The SDK opens a server in every operation that needs it. A server that is open already is shared, so a session that
stays open makes a connection, or a process, for each call unnecessary. A session belongs to a task of the worker, since
it has to be closed by the task that has opened it.
"""

import asyncio
from typing import Any

from pydantic_ai.toolsets import AbstractToolset


class _HeldServer:
    """A server that stays open until the session is released."""

    def __init__(self, server: AbstractToolset[Any]) -> None:
        self._server = server
        self._opened: asyncio.Future[None] | None = None
        self._release: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the server, unless it is open on this loop.

        :raises Exception: what opening it raises; the next call tries again
        """
        if self._opened is None or self._opened.get_loop() is not asyncio.get_running_loop():
            self._opened = asyncio.get_running_loop().create_future()
            self._release = asyncio.Event()
            self._task = asyncio.create_task(self._hold(self._opened, self._release))
        try:
            await asyncio.shield(self._opened)
        except Exception:
            self._opened = None
            raise

    async def _hold(self, opened: "asyncio.Future[None]", release: asyncio.Event) -> None:
        try:
            async with self._server:
                opened.set_result(None)
                await release.wait()
        except Exception as error:
            # If no call waits for it, the next call opens the server again and fails.
            if not opened.done():
                opened.set_exception(error)

    def release(self) -> None:
        """Let the server be closed; from the workflow."""
        if self._release is not None and self._opened is not None and not self._opened.get_loop().is_closed():
            self._opened.get_loop().call_soon_threadsafe(self._release.set)


class AgentSessions:
    """The sessions of one run of an agent."""

    def __init__(self) -> None:
        self._sessions: dict[int, _HeldServer] = {}

    def of(self, server: AbstractToolset[Any]) -> _HeldServer:
        return self._sessions.setdefault(id(server), _HeldServer(server))

    def release(self) -> None:
        """Let all servers be closed."""
        for one in self._sessions.values():
            one.release()
        self._sessions.clear()
