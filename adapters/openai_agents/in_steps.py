"""Agents of the SDK in the code of a step: calls that need a person are refused there.

The SDK asks an agent for its tools before each request of each run, wherever that runs. In a step it gets tools that
refuse what needs approval: by their own settings, by the configuration of the run, or by that of the agent whose tool
the step is. The SDK itself would return an interruption, which remains unanswered.
"""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from agents import FunctionTool, HostedMCPTool, MCPToolApprovalFunction, MCPToolApprovalRequest, Tool
from agents.agent import AgentBase
from agents.tool_context import ToolContext

from callboard.adapters.openai_agents.run_config import AS_TOOL, CallboardRunConfig
from callboard.adapters.openai_agents.tools import needs_approval, parse, spec_of
from callboard.bus.tool_names import names_of
from callboard.languages.python.approvals import needs_decision
from callboard.languages.python.in_steps import current_step, is_demanded, refuse_in_step

_get_all_tools: Any = AgentBase.get_all_tools


def refuse_approvals() -> None:
    """Replace the method by which the SDK asks an agent for its tools."""
    kind: Any = AgentBase
    kind.get_all_tools = _list_tools


async def _list_tools(self: Any, run_context: Any) -> list[Tool]:
    tools: list[Tool] = await _get_all_tools(self, run_context)
    return tools if current_step() is None else [_refusing(self.name, one) for one in tools]


def _refusing(agent: str, tool: Tool) -> Tool:
    """Return a tool that refuses calls that need a person."""
    refusing: Any = copy.copy(tool)
    if isinstance(tool, FunctionTool):
        # The SDK also interrupts a run for arguments that it cannot read.
        refusing.needs_approval = False
        refusing.on_invoke_tool = _refusing_call(agent, tool)
    elif isinstance(tool, HostedMCPTool):
        refusing.on_approval_request = _refusing_request(agent, tool.on_approval_request)
    elif getattr(tool, "on_approval", None) is None and hasattr(tool, "needs_approval"):
        refusing.needs_approval = _refusing_policy(agent, tool)
    return refusing


def _refusing_call(agent: str, tool: FunctionTool) -> Any:
    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        given, config = parse(arguments), context.run_config
        named: Mapping[str, Any] = given if isinstance(given, dict) else {}
        own = config.approvals if isinstance(config, CallboardRunConfig) else ()
        demanded = any(is_demanded(one, named) or needs_decision(own, one, named) for one in names_of(spec_of(tool)))
        if demanded or await needs_approval(tool, context, given):
            _refuse(agent, tool.name)
        return await tool.on_invoke_tool(context, arguments)

    return invoke


def _refusing_request(agent: str, own: MCPToolApprovalFunction | None) -> MCPToolApprovalFunction:
    def answer(request: MCPToolApprovalRequest) -> Any:
        asked = request.data
        given = parse(asked.arguments)
        if own is not None and not is_demanded(asked.name, given if isinstance(given, dict) else {}):
            return own(request)
        return _refuse(agent, asked.name)

    return answer


def _refusing_policy(agent: str, tool: Any) -> Any:
    policy = tool.needs_approval

    async def needs(*args: Any) -> bool:
        needed = policy if isinstance(policy, bool) else policy(*args)
        if (await needed if inspect.isawaitable(needed) else needed) or is_demanded(tool.name, {}):
            _refuse(agent, tool.name)
        return False

    return needs


def _refuse(agent: str, tool: str) -> Any:
    refuse_in_step(f"agent {agent}", f"calls {tool}, which needs approval,", AS_TOOL)
