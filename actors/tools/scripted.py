"""The transport of scripted tools: answers from the run's script, for rehearsals and for tools without a server.

A script has ``tools: {name: [{output: …} | {error: "…"} | {error: {code, message}}, …]}``; the n-th call of a tool in
the order of the log gets the n-th entry, also when it is executed again.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from callboard.actors.tools.failures import tool_failed
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.bus.effects import ScriptedTools, ToolSpec
from callboard.lib.json_types import JSON


def scripts(tool: str, script: Mapping[str, Any]) -> bool:
    """Return whether a script has answers for a tool."""
    entries = script.get("tools")
    return isinstance(entries, Mapping) and tool in entries


def scripted_answer(tool: str, script: Mapping[str, Any], context: ToolCallContext) -> JSON:
    """Return the script's answer to this call.

    :raises ToolFailed: ``tool.failed`` if the script says so; ``tool.unscripted`` if it has no entry for this call
    """
    entries: Any = (script.get("tools") or {}).get(tool)
    place = f"call {context.ordinal + 1} of tool {tool} at {context.path or 'the run'}"
    if not isinstance(entries, list) or context.ordinal >= len(entries):
        count = len(entries) if isinstance(entries, list) else 0
        remedy = f"add an entry to tools.{tool} of the script"
        raise tool_failed("tool.unscripted", f"{place} has no answer, the script has {count}; {remedy}")
    match entries[context.ordinal]:
        case {"error": {"message": str(message), **rest}}:
            code = rest.get("code")
            raise tool_failed("tool.failed", message, {"code": code} if code else None)
        case {"error": str(message)}:
            raise tool_failed("tool.failed", message)
        case {"output": output}:
            return output
        case entry:
            found = f"{type(entry).__name__} with {sorted(entry)}" if isinstance(entry, dict) else repr(entry)
            raise tool_failed("tool.unscripted", f"{place}: expected output or error in the script, found {found}")


@asynccontextmanager
async def open_scripted(source: ScriptedTools, environment: ToolEnvironment) -> AsyncGenerator["ScriptedTransport"]:
    """Open a source of scripted tools; it holds no resources."""
    yield ScriptedTransport(source.tools, environment.script)


class ScriptedTransport:
    """An open source of scripted tools."""

    def __init__(self, specs: list[ToolSpec], script: Mapping[str, Any]) -> None:
        self.specs = specs
        self.warnings: list[tuple[str, str, str]] = []
        self._script = script

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Answer from the script, whatever the input.

        :raises ToolFailed: ``tool.failed``, ``tool.unscripted``
        """
        return scripted_answer(tool, self._script, context)
