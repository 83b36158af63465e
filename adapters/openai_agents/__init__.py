"""Agents of the OpenAI Agents SDK in workflows: each model request and each tool call is an effect of the run.

``Runner.run(agent, input, run_config=callboard_run_config())`` in a `callboard.workflow`; the agent stays as it is. The
import turns the SDK's tracing off in workflows.
"""

from callboard.adapters.versions import probe, require

require("openai-agents", extra="openai-agents", oldest="0.24.0", newest="0.24.0")
probe(
    "openai-agents",
    "openai-agents",
    "agents.agent:AgentBase.get_all_tools",
    "agents.run:AgentRunner.run",
    "agents.models.fake_id:FAKE_RESPONSES_ID",
    "agents.tool:get_function_tool_origin",
    "agents.tool_context:ToolContext",
)

from callboard.adapters.openai_agents.in_steps import refuse_approvals  # noqa: E402
from callboard.adapters.openai_agents.mcp_servers import CallboardMCPServer, refuse_connections  # noqa: E402
from callboard.adapters.openai_agents.run_config import callboard_run_config, refuse_unrecorded  # noqa: E402
from callboard.adapters.openai_agents.sessions import CallboardSession, RecordedSession  # noqa: E402
from callboard.adapters.openai_agents.tracing import install  # noqa: E402

__all__ = ["CallboardMCPServer", "CallboardSession", "RecordedSession", "callboard_run_config"]

install()
refuse_approvals()
refuse_connections()
refuse_unrecorded()
