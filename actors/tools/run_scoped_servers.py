"""MCP servers whose sessions are opened again: those of a run, and those of a node that are reached over HTTP.

A source with scope ``run`` has one server for all nodes of a run, opened when a node first needs it. It is closed when
the run parks, ends or moves to another worker. The next activation opens it again, and so does the next call if the
server is gone. A call that a server refused because it no longer knows the session is made again in a new session,
since the server has not executed it. `SharedObjects` has what else the nodes of a run share.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TypeGuard

import anyio
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from callboard.actors.tools.failures import tool_failed
from callboard.actors.tools.held import Held, open_source, server_of
from callboard.actors.tools.limits import Turns
from callboard.actors.tools.tool import (
    SessionForgotten,
    ToolCallContext,
    ToolEnvironment,
    ToolFailed,
    ToolTransport,
    refresh,
)
from callboard.bus.effects import McpTools, ToolSource, ToolSpec
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

Spawn = Callable[[Callable[[], Awaitable[None]]], object]
"""Starts a task that lasts no longer than the activation of the run, or than the toolbox."""


def is_of_the_run(source: ToolSource) -> TypeGuard[McpTools]:
    """Return whether a source is shared by the nodes of its run, and not opened for each node."""
    return isinstance(source, McpTools) and source.scope == "run"


def is_reached_over_http(source: ToolSource) -> TypeGuard[McpTools]:
    """Return whether a source is a server that outlives its sessions, so that a node can open another one."""
    return isinstance(source, McpTools) and bool(source.url)


SESSIONS_PER_CALL = 2
"""In how many sessions a call is made at most: one that the server may have forgotten, and a new one."""


class _Session:
    """A session, and how many calls are made in it. It is closed when it is dropped and has no calls left."""

    def __init__(self, source: McpTools) -> None:
        self.held = Held(source, open_source)
        self.closing = anyio.Event()
        self._calls = 0
        self._is_dropped = False

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the session open for the length of the block."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._close_if_unused()

    def drop(self) -> None:
        self._is_dropped = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_dropped and not self._calls:
            self.closing.set()


class RunScopedServers:
    """The sessions of one run or of one toolbox."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._sessions: dict[bytes, _Session] = {}

    @asynccontextmanager
    async def lent(self, source: McpTools, environment: ToolEnvironment) -> AsyncGenerator[ToolTransport]:
        """Lend a source to a node for the length of the block, opening it if it is not open.

        :raises ToolFailed: if it cannot be opened
        """
        _session, transport = await self._open(source, environment)
        yield _Lent(self, source, environment, transport)

    async def call(
        self, source: McpTools, environment: ToolEnvironment, tool: str, input: JSON, context: ToolCallContext
    ) -> JSON:
        """Call a tool of a source, opening the source again if it is gone, or if the server has forgotten the session.

        :raises ToolFailed: without usable output
        """
        for left in reversed(range(SESSIONS_PER_CALL)):
            session, transport = await self._open(source, environment)
            try:
                with session.in_use():
                    return await transport.call(tool, input, context)
            except SessionForgotten:
                self._drop(session)
                if not left:
                    raise
            except ToolFailed as failed:
                # A failure that may be retried has lost an answer, but not the session.
                if failed.failure.code == "tool.crashed" and not failed.failure.retryable:
                    self._drop(session)
                raise
        raise AssertionError("the last session returns or raises")

    def transport_of(self, source: McpTools) -> ToolTransport | None:
        """Return the transport of a source's open session, if it has one."""
        session = self._sessions.get(_identity(source))
        return None if session is None else session.held.transport

    def close(self) -> None:
        """Close all sessions."""
        for session in self._sessions.values():
            session.closing.set()
        self._sessions.clear()

    async def _open(self, source: McpTools, environment: ToolEnvironment) -> tuple[_Session, ToolTransport]:
        key = _identity(source)
        for left in reversed(range(SESSIONS_PER_CALL)):
            session = self._sessions.get(key)
            if session is None or session.held.is_over:
                session = self._sessions[key] = _Session(source)
                self._spawn(partial(session.held.hold, environment, session.closing))
            held = session.held
            await held.settled.wait()
            if held.transport is not None and not held.is_over:
                return session, held.transport
            self._drop(session)
            if held.failure is not None and not (left and held.was_forgotten):
                raise ToolFailed(held.failure)
        raise tool_failed("tool.unavailable", f"MCP server {server_of(source)} was closed", retryable=True)

    def _drop(self, session: _Session) -> None:
        """Forget a session that is gone, unless this has happened already."""
        for key, one in list(self._sessions.items()):
            if one is session:
                del self._sessions[key]
                session.drop()


class _Lent:
    """A source as a node sees it."""

    def __init__(
        self, standing: RunScopedServers, source: McpTools, environment: ToolEnvironment, transport: ToolTransport
    ) -> None:
        self._standing = standing
        self._source = source
        self._environment = environment
        self._last = transport

    @property
    def specs(self) -> list[ToolSpec]:
        return self._transport().specs

    @property
    def warnings(self) -> list[tuple[str, str, str]]:
        return self._transport().warnings

    async def refresh(self) -> None:
        await refresh(self._transport())

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        if context.timeout_s is None:
            # Another node may have opened it with another timeout.
            context = replace(context, timeout_s=self._environment.seconds(self._source))
        return await self._standing.call(self._source, self._environment, tool, input, context)

    def _transport(self) -> ToolTransport:
        """Return the transport of the present session, or else that of the last one."""
        self._last = self._standing.transport_of(self._source) or self._last
        return self._last


def _identity(source: McpTools) -> bytes:
    """Return what identifies a server: equal for two sources that differ only in a node's limits."""
    return canonical(msgspec.structs.replace(source.as_recorded(), timeout_s=None, limits={}))


class SharedObjects(Struct, frozen=True):
    """Objects that the nodes of a run share: its sources with scope ``run``, and the turns of limited calls."""

    standing: RunScopedServers
    turns: Turns = field(default_factory=Turns)
