"""MCP servers of agents of the SDK in workflows: the worker has the connection, and each call of a tool is recorded."""

import os
from collections.abc import Mapping
from functools import wraps
from typing import Any

from agents.agent import AgentBase
from agents.mcp import MCPServer, MCPServerSse, MCPServerStdio, MCPServerStreamableHttp
from agents.run_context import RunContextWrapper
from mcp.types import CallToolResult, GetPromptResult, ListPromptsResult, TextContent
from mcp.types import Tool as MCPTool
from msgspec import Struct

from callboard.bus.effects import McpTools, ToolSpec
from callboard.languages.language import Failed, Node, Toolbox
from callboard.languages.python.errors import NotInWorkflow, StepFailed
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON


class _Open(Struct):
    """A server that is open in a run: its node, and the toolbox with its tools as the log has them now."""

    node: Node
    toolbox: Toolbox
    count: int = 0

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        return {one.name: one for one in self.toolbox.specs}


def refuse_connections() -> None:
    """Refuse the SDK's own servers in workflows: their connections are input and output."""
    for kind in (MCPServerStdio, MCPServerSse, MCPServerStreamableHttp):
        for name in ("connect", "list_tools", "call_tool"):
            setattr(kind, name, _outside_only(kind, getattr(kind, name)))


def _outside_only(kind: type, method: Any) -> Any:
    @wraps(method)
    async def call(self: MCPServer, *args: Any, **named: Any) -> Any:
        if current_loop() is not None:
            how = 'command=["npx", …]' if kind is MCPServerStdio else 'url="https://…"'
            raise NotInWorkflow(
                f"{kind.__name__} {self.name} has its connection in the workflow, where nothing records it: use "
                f'CallboardMCPServer(McpTools("{self.name}", {how})) in its place, whose connection the worker has'
            )
        return await method(self, *args, **named)

    return call


class CallboardMCPServer(MCPServer):
    """An MCP server for the ``mcp_servers`` of an agent.

    In a workflow the worker opens it, as for the agents of Callboard: its list of tools and each call are recorded, and
    a worker that continues the run opens it again when it calls a tool. It is open from ``connect``, or from its first
    use, until ``cleanup`` or the end of the run. Outside of workflows it is a server of the SDK. ``options`` are those
    of `agents.mcp.MCPServer`, such as ``require_approval``.
    """

    def __init__(self, source: McpTools, **options: Any) -> None:
        super().__init__(**options)
        self._source = source
        self._options = options
        self._outside: MCPServer | None = None
        loop = current_loop()
        self._above = loop.path() if loop is not None else ""
        self._where = loop.where() if loop is not None else ""

    @property
    def name(self) -> str:
        return self._source.name

    async def connect(self) -> None:
        """Open the server.

        :raises StepFailed: if it cannot be opened
        """
        loop = current_loop()
        if loop is None:
            await self._plain().connect()
        else:
            await self._ensure_open(loop)

    async def cleanup(self) -> None:
        """Close the server."""
        loop = current_loop()
        if loop is None:
            outside, self._outside = self._outside, None
            if outside is not None:
                await outside.cleanup()
            return
        opened: _Open | None = loop.locals.pop(self, None)
        if opened is not None:
            await opened.toolbox.__aexit__(None, None, None)

    async def __aenter__(self) -> "CallboardMCPServer":
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cleanup()

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: AgentBase[Any] | None = None
    ) -> list[MCPTool]:
        loop = current_loop()
        if loop is None:
            return await self._plain().list_tools(run_context, agent)
        specs = (await self._ensure_open(loop)).specs.values()
        return [
            MCPTool(name=one.name, description=one.description, input_schema=dict(one.input_schema)) for one in specs
        ]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        loop = current_loop()
        if loop is None:
            return await self._plain().call_tool(tool_name, arguments, meta)
        opened = await self._ensure_open(loop)
        opened.count += 1
        # A server may have withdrawn the tool since the SDK has listed it; the worker then says so.
        spec = opened.specs.get(tool_name, ToolSpec(tool_name, server=self.name))
        node = opened.node
        slot = f"tool.{opened.count}"
        call = node.tool(slot, tool_name, arguments or {}, server=spec.server, own_name=spec.own_name)
        outcome = await loop.effect(node, call)
        if isinstance(outcome, Failed):
            return CallToolResult(content=[TextContent(type="text", text=outcome.error.message)], is_error=True)
        return _result_of(outcome.value)

    async def list_prompts(self) -> ListPromptsResult:
        return await self._plain().list_prompts()

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        return await self._plain().get_prompt(name, arguments)

    async def _ensure_open(self, loop: WorkflowLoop) -> _Open:
        opened: _Open | None = loop.locals.get(self)
        if opened is not None:
            return opened
        node = loop.place(self.name, self._where, above=self._above)
        toolbox = node.toolbox([self._source])
        listed = await loop.effect(node, toolbox.__aenter__())
        if isinstance(listed, Failed):
            raise StepFailed(listed.error)
        opened = _Open(node, toolbox)
        loop.locals[self] = opened
        return opened

    def _plain(self) -> MCPServer:
        """Return the server of the SDK, for use outside of workflows."""
        if current_loop() is not None:
            raise NotImplementedError(f"server {self.name} has tools only in a workflow, and no prompts")
        if self._outside is None:
            source = self._source
            if source.url:
                params: Any = {"url": source.url, "headers": dict(source.headers)}
                self._outside = MCPServerStreamableHttp(params, name=source.name, **self._options)
            else:
                command, *args = source.command
                env = {name: os.environ[variable] for name, variable in source.env.items() if variable in os.environ}
                params = {"command": command, "args": args, "env": env}
                self._outside = MCPServerStdio(params, name=source.name, **self._options)
        return self._outside


def _result_of(output: JSON) -> CallToolResult:
    """Return the result of a recorded call: structured content is JSON again, also as text."""
    text = output if isinstance(output, str) else canonical(output).decode()
    structured = output if isinstance(output, dict) else None
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)
