"""Sources with scope ``run``: one MCP server for all nodes of a run, opened when a node first needs it.

It is closed when the run parks, ends or moves to another worker. The next activation opens it again, and so does the
next call if the server is gone.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeGuard

import anyio
import msgspec
from msgspec.structs import replace

from callboard.actors.tools.failures import tool_failed
from callboard.actors.tools.held import Held, open_source, server_of
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed, ToolTransport
from callboard.bus.effects import McpTools, ToolSource
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

Spawn = Callable[[Callable[[], Awaitable[None]]], object]
"""Starts a task that lasts no longer than the activation of the run."""


def is_of_the_run(source: ToolSource) -> TypeGuard[McpTools]:
    """Return whether a source is shared by the nodes of its run, and not opened for each node."""
    return isinstance(source, McpTools) and source.scope == "run"


class Standing:
    """The shared sources of one run."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._held: dict[bytes, tuple[Held, anyio.Event]] = {}

    @asynccontextmanager
    async def lent(self, source: McpTools, environment: ToolEnvironment) -> AsyncGenerator[ToolTransport]:
        """Lend a source to a node for the length of the block, opening it if it is not open.

        :raises ToolFailed: if it cannot be opened
        """
        _held, transport = await self._open(source, environment)
        yield _Lent(self, source, environment, transport)

    async def call(
        self, source: McpTools, environment: ToolEnvironment, tool: str, input: JSON, context: ToolCallContext
    ) -> JSON:
        """Call a tool of a source, opening the source again if it is gone.

        :raises ToolFailed: if there is no usable output
        """
        held, transport = await self._open(source, environment)
        try:
            return await transport.call(tool, input, context)
        except ToolFailed as failed:
            # A failure that may be retried has lost an answer, but not the session.
            if failed.failure.code == "tool.crashed" and not failed.failure.retryable:
                self._drop(held)
            raise

    async def _open(self, source: McpTools, environment: ToolEnvironment) -> tuple[Held, ToolTransport]:
        key = _identity(source)
        held, closing = self._held.get(key, (None, None))
        if held is None or closing is None or held.is_over:
            held, closing = Held(source, open_source), anyio.Event()
            self._held[key] = held, closing
            self._spawn(partial(held.hold, environment, closing))
        await held.settled.wait()
        if held.transport is None or held.is_over:
            self._drop(held)
            if held.failure is not None:
                raise ToolFailed(held.failure)
            raise tool_failed("tool.unavailable", f"MCP server {server_of(source)} was closed", retryable=True)
        return held, held.transport

    def _drop(self, held: Held) -> None:
        """Forget a source that is gone, unless this has happened already."""
        for key, (one, closing) in list(self._held.items()):
            if one is held:
                del self._held[key]
                closing.set()


class _Lent:
    """A shared source as a node sees it; its list of tools is that of the moment when the node was entered."""

    def __init__(
        self, standing: Standing, source: McpTools, environment: ToolEnvironment, transport: ToolTransport
    ) -> None:
        self.specs = transport.specs
        self.warnings = transport.warnings
        self._standing = standing
        self._source = source
        self._environment = environment

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        if context.timeout_s is None:
            # Another node may have opened it with another timeout.
            context = replace(context, timeout_s=self._environment.seconds(self._source))
        return await self._standing.call(self._source, self._environment, tool, input, context)


def _identity(source: McpTools) -> bytes:
    """Return what identifies a server: equal for two sources that differ only in a node's limits."""
    return canonical(msgspec.structs.replace(source.as_recorded(), timeout_s=None, limits={}))
