"""Sources that stand for a run: one MCP server for all its nodes, opened when a node first asks for it.

It is closed when the run parks, ends or goes on elsewhere; whoever goes on with the run opens it anew. One that is gone
is opened again by the next call.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeGuard

import anyio
import msgspec
from msgspec.structs import replace

from callboard.actors.tools.failures import tool_failed
from callboard.actors.tools.held import Held, opened, server_of
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed, ToolTransport
from callboard.bus.effects import JSON, McpTools, ToolSource, canonical

Spawn = Callable[[Callable[[], Awaitable[None]]], object]
"""Starts a task that lasts no longer than what the run has here."""


def is_of_the_run(source: ToolSource) -> TypeGuard[McpTools]:
    """Say whether a source stands for its run, and not for each node."""
    return isinstance(source, McpTools) and source.scope == "run"


class Standing:
    """The standing sources of one run."""

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
        """Call a tool of a source, opening that anew if it is gone.

        :raises ToolFailed: whatever goes wrong
        """
        held, transport = await self._open(source, environment)
        try:
            return await transport.call(tool, input, context)
        except ToolFailed as failed:
            # One that may be tried again has lost an answer, and not its session.
            if failed.failure.code == "tool.crashed" and not failed.failure.retryable:
                self._drop(held)
            raise

    async def _open(self, source: McpTools, environment: ToolEnvironment) -> tuple[Held, ToolTransport]:
        key = _identity(source)
        held, closing = self._held.get(key, (None, None))
        if held is None or closing is None or held.is_over:
            held, closing = Held(source, opened), anyio.Event()
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
        """Let go of a source that is gone, if that has not been done yet."""
        for key, (one, closing) in list(self._held.items()):
            if one is held:
                del self._held[key]
                closing.set()


class _Lent:
    """A standing source as a node has it; what it lists was so when the node was entered."""

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
            # Another node may have opened it, with another time.
            context = replace(context, timeout_s=self._environment.seconds(self._source))
        return await self._standing.call(self._source, self._environment, tool, input, context)


def _identity(source: McpTools) -> bytes:
    """What makes two sources the same server, whatever limits each node has there."""
    return canonical(msgspec.structs.replace(source.recorded(), timeout_s=None, limits={}))
