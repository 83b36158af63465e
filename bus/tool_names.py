"""The names of tools of MCP servers: the server's own, and the one with the server's name in front.

Servers may have tools of one name. A model is offered these under names with the server's name in front. Definitions
may use both names of a tool, whether or not it is offered under the longer one at the moment.
"""

import re
from hashlib import sha256

from callboard.bus.effects import McpTools, ToolSpec

NAME_CHARS_MAX = 64
"""The maximum length of a name that all model providers accept."""

_DIGEST_CHARS = 8

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def prefixed_name(server: str, tool: str) -> str:
    """Return the name of a tool with its server's name in front, in the form that all model providers accept."""
    name = _NOT_IN_NAMES.sub("_", f"{server}_{tool}")
    name = name if name[0].isalpha() or name[0] == "_" else f"_{name}"
    if len(name) <= NAME_CHARS_MAX:
        return name
    mark = sha256(f"{server}\n{tool}".encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{mark}"


def names_of(tool: ToolSpec) -> frozenset[str]:
    """Return all names by which a definition may mean a tool."""
    if not tool.own_name:
        return frozenset({tool.name})
    return frozenset({tool.name, tool.own_name, prefixed_name(tool.server, tool.own_name)})


def passes(source: McpTools, tool: str) -> bool:
    """Return whether a tool of an MCP server may be offered."""
    names = {tool, prefixed_name(source.name, tool)}
    return (source.allow is None or not names.isdisjoint(source.allow)) and names.isdisjoint(source.deny)
