"""The tools of TOOL nodes: their sources, and which of them a model may call.

A run's script answers the calls of the tools that it names; an MCP server has the others.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from callboard.bus.effects import McpTools, ScriptedTools, ToolSource, ToolSpec
from callboard.bus.tool_names import names_of
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.templates import is_placeholder
from callboard.languages.graph.topology import GraphNode
from callboard.languages.graph.work import ExecutionState
from callboard.lib.json_types import JSON

SERVER_URL = "http://localhost:8000/api/v1/mcp"
"""The URL of the MCP server of a node that does not name one."""

CREDENTIALS = ("access_token", "firecrawl_api_key", "discord_bot_token", "api_key", "bot_token")
"""The configurations that may hold a server's token; ``${VARIABLE}`` in one is a variable of the worker."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_ANYTHING: dict[str, JSON] = {"type": "object"}


class Served(Struct, frozen=True):
    """The sources of a node's tools; ``names`` are the tools that the node lists."""

    node: GraphNode
    names: tuple[str, ...]
    sources: list[ToolSource]

    def select_offered(self, listing: list[ToolSpec]) -> list[ToolSpec]:
        """Return the tools of a server that the node lists; all of them if the server has none that it lists."""
        known = [tool for tool in listing if not names_of(tool).isdisjoint(self.names)]
        return known or listing

    @property
    def server_url(self) -> str:
        """The URL of the node's MCP server; empty if it needs none."""
        return next((source.url for source in self.sources if isinstance(source, McpTools)), "")

    def has(self, tool: ToolSpec) -> bool:
        """Return whether one of the sources has a tool."""
        for source in self.sources:
            if isinstance(source, ScriptedTools) and any(one.name == tool.name for one in source.tools):
                return True
            if isinstance(source, McpTools) and source.name == tool.server:
                return True
        return False


def resolve_tools(node: GraphNode, context: ExecutionState) -> Served:
    """Determine the sources of a node's tools."""
    listed = node.setting("available_tools")
    names = tuple(text_of(name) for name in listed) if isinstance(listed, list) else ()
    scripted = [name for name in names or sorted(context.scripted_tools) if name in context.scripted_tools]
    sources: list[ToolSource] = []
    if scripted:
        sources.append(ScriptedTools([ToolSpec(name, input_schema=_ANYTHING) for name in scripted]))
    elsewhere = not scripted or (set(names) - set(scripted) and node.configurations.get("mcp_server_url"))
    if elsewhere:
        url = text_of(node.setting("mcp_server_url")) or SERVER_URL
        sources.append(McpTools(name=node.id, url=url, headers=_headers(node), timeout_s=_timeout_s(node)))
    return Served(node, names, sources)


def referenced_variables(nodes: Iterable[GraphNode]) -> set[str]:
    """Return the names of the worker's variables that the tokens of TOOL nodes refer to."""
    tokens = [text_of(node.configurations.get(name)) for node in nodes if node.type == "TOOL" for name in CREDENTIALS]
    return {name for token in tokens for name in _VARIABLE.findall(token)}


def _headers(node: GraphNode) -> dict[str, str]:
    token = next((given for name in CREDENTIALS if not is_placeholder(given := node.configurations.get(name))), None)
    return {"Authorization": f"Bearer {text_of(token)}"} if token is not None else {}


def _timeout_s(node: GraphNode) -> float | None:
    given = node.configurations.get("timeout_seconds") or node.configurations.get("timeout")
    return float(given) if isinstance(given, int | float) and given > 0 else None
