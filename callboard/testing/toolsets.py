"""Sources of tools without connections: their tools are given by the test, and the start's script answers the calls."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from callboard.actors.carrier import EffectFailed
from callboard.actors.tools.python_signature import load_function
from callboard.actors.tools.scripted import ScriptedTransport
from callboard.actors.tools.tool import Opens, ToolEnvironment, ToolFailed
from callboard.bus.effects import Failure, McpTools, NatsTools, PythonTools, ScriptedTools, ToolSource, ToolSpec

Listing = Sequence[ToolSpec] | Callable[[McpTools], Sequence[ToolSpec]]
"""The tools of an MCP server, or a function that returns them for the server's source."""


def scripting(servers: Mapping[str, Listing]) -> Opens:
    """Return a function that opens sources. ``servers`` are the tools of MCP servers, by name of the server."""

    @asynccontextmanager
    async def opens(source: ToolSource, environment: ToolEnvironment) -> AsyncGenerator[ScriptedTransport]:
        try:
            specs = _list_tools(source, servers)
        except EffectFailed as failed:
            raise ToolFailed(failed.failure) from failed
        yield ScriptedTransport(specs, environment.script)

    return opens


def _list_tools(source: ToolSource, servers: Mapping[str, Listing]) -> list[ToolSpec]:
    match source:
        case PythonTools(functions=functions):
            return [load_function(name, path).spec for name, path in functions.items()]
        case McpTools(name=name):
            if name not in servers:
                raise EffectFailed(Failure("testing.unscripted", f"no tools are given for the MCP server {name}"))
            listing = servers[name]
            return list(listing(source) if callable(listing) else listing)
        case NatsTools(tools=tools) | ScriptedTools(tools=tools):
            return tools
