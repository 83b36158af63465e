"""Limits of single tools: the time of a call, when a failed call is tried again, how many calls run at once."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec.structs import replace

from callboard.actors.tools.tool import ToolCallContext, ToolFailed
from callboard.bus.effects import (
    TOOL_TIMEOUT_MAX_S,
    Failure,
    McpTools,
    NatsTools,
    PythonTools,
    ScriptedTools,
    ToolboxRecord,
    ToolLimits,
    ToolSource,
)
from callboard.bus.events import ToolCall
from callboard.lib.durations import seconds_of
from callboard.lib.json_types import JSON

RETRY_FIRST_S = 0.5
"""The pause between a failure and the next try; doubled after each further failure."""

RETRY_LONGEST_S = 30.0
"""The longest wait before another try."""

TIMEOUT_MIN_S = 0.001
"""The minimum timeout of a call: a timeout of zero would fail every call."""

AGAIN = frozenset({"tool.failed", "tool.timeout", "tool.crashed", "tool.unavailable"})
"""Failures after which another try may succeed, unless they say otherwise; others repeat every time."""


def limits_of(source: ToolSource, tool: str) -> ToolLimits:
    """Return the limits of a tool of a source."""
    return source.limits.get(tool, NONE)


NONE = ToolLimits()
"""The limits of a tool without settings."""


def with_timeout(limits: ToolLimits, context: ToolCallContext) -> ToolCallContext:
    """Return the context of a call with the time that it may take."""
    if limits.timeout is None:
        return context
    return replace(context, timeout_s=min(TOOL_TIMEOUT_MAX_S, max(TIMEOUT_MIN_S, seconds_of(limits.timeout))))


async def call_with_retries(
    source: ToolSource, tool: str, context: ToolCallContext, call: Callable[[], Awaitable[JSON]]
) -> JSON:
    """Call a tool, repeatedly as far as its limits allow, until the call succeeds or fails in a way that does not pass.

    :raises ToolFailed: the failure of the last try
    """
    limits = limits_of(source, tool)
    tries = context.tried + 1
    while True:
        context.on_try(tries)
        try:
            return await call()
        except ToolFailed as failed:
            if tries > limits.retries or not _worth_another(source, failed.failure):
                raise
            left = limits.retries - tries + 1
            wait_s = min(RETRY_LONGEST_S, RETRY_FIRST_S * 2 ** (tries - 1))
            what = f"try {tries} failed ({failed.failure.code}: {failed.failure.message})"
            context.on_failed_try(tries, f"{what}; {left} left, the next one in {wait_s:g} s")
        await anyio.sleep(wait_s)
        tries += 1


def _worth_another(source: ToolSource, failure: Failure) -> bool:
    if failure.retryable is not None:
        return failure.code in AGAIN and failure.retryable
    # A program that serves one node is started again only in the node's next execution.
    gone = failure.code == "tool.crashed" and isinstance(source, McpTools) and source.scope == "node" and not source.url
    return failure.code in AGAIN and not gone


class Turns:
    """Limits how many calls of a tool one run makes at once, if the tool's limits say so; the others wait in order."""

    def __init__(self) -> None:
        self._gates: dict[tuple[str, str, int], anyio.Semaphore] = {}

    @asynccontextmanager
    async def turn(self, call: ToolCall, toolboxes: Mapping[str, ToolboxRecord]) -> AsyncGenerator[None]:
        """Wait until one more call of a tool may begin, and hold its place for the length of the block."""
        gate = self._gate(call, [source for record in toolboxes.values() for source in record.sources])
        if gate is None:
            yield
            return
        async with gate:
            yield

    def _gate(self, call: ToolCall, sources: Sequence[ToolSource]) -> anyio.Semaphore | None:
        tool = call.own_name or call.tool
        if call.own_name:
            sources = [source for source in sources if isinstance(source, McpTools) and source.name == call.server]
        source = next((source for source in sources if tool in source.limits), None)
        concurrency = None if source is None else limits_of(source, tool).concurrency
        if source is None or concurrency is None:
            return None
        key = tool, _served_by(source, tool), concurrency
        if key not in self._gates:
            self._gates[key] = anyio.Semaphore(concurrency)
        return self._gates[key]


def _served_by(source: ToolSource, tool: str) -> str:
    """Return an identity of a tool's server: the same for all nodes that use the tool of this source."""
    match source:
        case PythonTools(functions=functions):
            return functions.get(tool, "")
        case NatsTools(subject=subject):
            return subject
        case McpTools(name=name):
            return name
        case ScriptedTools():
            return "script"
