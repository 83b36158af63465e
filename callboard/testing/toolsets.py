"""Sources of tools without connections: the test gives their tools, and answers the calls."""

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from callboard.actors.carrier import EffectFailed
from callboard.actors.tools.failures import describe_error, exception_details, tool_failed
from callboard.actors.tools.python_signature import ToolFunction, load_function
from callboard.actors.tools.scripted import ScriptedTransport
from callboard.actors.tools.tool import Opens, ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus.effects import Failure, McpTools, NatsTools, PythonTools, ScriptedTools, ToolSource, ToolSpec
from callboard.bus.work import WORK, WorkContext
from callboard.lib.finite_json import encode_finite
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import encode_json
from callboard.testing.answers import UNSCRIPTED, Answering

Listing = Sequence[ToolSpec] | Callable[[McpTools], Sequence[ToolSpec]]
"""The tools of an MCP server, or a function that returns them for the server's source. The function is called again
after each call of a tool, because a server may change its tools."""


def scripting(servers: Mapping[str, Listing], answering: Answering, *, call_steps: bool) -> Opens:
    """Return a function that opens sources. ``servers`` are the tools of MCP servers, by name of the server. Functions
    that have no answers are called if ``call_steps``."""

    @asynccontextmanager
    async def opens(source: ToolSource, environment: ToolEnvironment) -> AsyncGenerator[ScriptedTransport]:
        if isinstance(source, PythonTools):
            yield _Functions(source, answering, environment.script, call_steps=call_steps)
            return
        try:
            specs = _list_tools(source, servers)
        except EffectFailed as failed:
            raise ToolFailed(failed.failure) from failed
        if isinstance(source, McpTools) and callable(listing := servers[source.name]):
            yield _Changing(specs, environment.script, partial(listing, source))
        else:
            yield ScriptedTransport(specs, environment.script)

    return opens


class _Changing(ScriptedTransport):
    """An open source whose tools a function returns."""

    def __init__(
        self, specs: list[ToolSpec], script: Mapping[str, Any], listing: Callable[[], Sequence[ToolSpec]]
    ) -> None:
        super().__init__(specs, script)
        self._listing = listing

    async def refresh(self) -> None:
        now = list(self._listing())
        self.specs = self.specs if now == self.specs else now


def _list_tools(source: McpTools | NatsTools | ScriptedTools, servers: Mapping[str, Listing]) -> list[ToolSpec]:
    match source:
        case McpTools(name=name):
            if name not in servers:
                raise EffectFailed(Failure(UNSCRIPTED, f"no tools are given for the MCP server {name}"))
            listing = servers[name]
            return list(listing(source) if callable(listing) else listing)
        case NatsTools(tools=tools) | ScriptedTools(tools=tools):
            return tools


class _Functions(ScriptedTransport):
    """Python functions, among them steps with a separate process. They are answered for, or called
    here."""

    def __init__(
        self, source: PythonTools, answering: Answering, script: Mapping[str, Any], *, call_steps: bool
    ) -> None:
        self._functions = {name: load_function(name, path) for name, path in source.functions.items()}
        super().__init__([one.spec for one in self._functions.values()], script)
        self._answering = answering
        self._calls = call_steps

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Answer, or call the function.

        :raises ToolFailed: ``testing.unscripted``, ``tool.failed``, or as the test wants
        """
        try:
            if self._answering.scripts_step(tool, self._script) or not self._calls:
                found = await self._answering.answer_step(tool, context.idempotency_key, input, self._script)
            else:
                found = await self._call_function(self._functions[tool], input, context)
            return decode_json(encode_finite(found, lambda model: model.model_dump(mode="json")))
        except EffectFailed as failed:
            raise ToolFailed(failed.failure) from failed
        except Exception as error:
            raised = f"tool {tool} raised {describe_error(error)}"
            raise tool_failed(
                "tool.failed", raised, exception_details(error, self._functions[tool].function)
            ) from error

    async def _call_function(self, tool: ToolFunction, input: JSON, context: ToolCallContext) -> Any:
        found: Any = None
        positional, named = tool.bind(encode_json(input), context)
        # The function may be a step.
        work = WorkContext(context.run, context.path, context.idempotency_key, 1, context.on_progress, tool.spec.name)
        token = WORK.set(work)
        try:
            found = tool.function(*positional, **named)
            found = await found if inspect.isawaitable(found) else found
        except Exception:
            if not work.refused:
                raise
        finally:
            WORK.reset(token)
        if work.refused:
            raise EffectFailed(work.refused[0])
        return found
