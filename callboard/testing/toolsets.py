"""Sources of tools that nobody opens: what each lists is known here, and the start's script answers the calls."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from callboard.actors.carrier import EffectFailed
from callboard.actors.tools.python_signature import load_function
from callboard.actors.tools.scripted import ScriptedTransport
from callboard.actors.tools.tool import Opens, ToolEnvironment, ToolFailed
from callboard.bus.effects import Failure, McpTools, NatsTools, PythonTools, ScriptedTools, ToolSource, ToolSpec

Listing = Sequence[ToolSpec] | Callable[[McpTools], Sequence[ToolSpec]]
"""What an MCP server lists: its tools, or a function of how it would be opened."""


def scripting(servers: Mapping[str, Listing]) -> Opens:
    """Return what opens sources so; ``servers`` are the listings of MCP servers, by name."""

    @asynccontextmanager
    async def opens(source: ToolSource, environment: ToolEnvironment) -> AsyncGenerator[ScriptedTransport]:
        try:
            specs = _listed(source, servers)
        except EffectFailed as failed:
            raise ToolFailed(failed.failure) from failed
        yield ScriptedTransport(specs, environment.script)

    return opens


def _listed(source: ToolSource, servers: Mapping[str, Listing]) -> list[ToolSpec]:
    match source:
        case PythonTools(functions=functions):
            return [load_function(name, path).spec for name, path in functions.items()]
        case McpTools(name=name):
            if name not in servers:
                raise EffectFailed(Failure("testing.unscripted", f"nothing says what the MCP server {name} lists"))
            listing = servers[name]
            return list(listing(source) if callable(listing) else listing)
        case NatsTools(tools=tools) | ScriptedTools(tools=tools):
            return tools
