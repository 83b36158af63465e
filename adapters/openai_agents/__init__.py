"""Agents of the OpenAI Agents SDK in workflows: each model request and each tool call is an effect of the run.

``Runner.run(agent, input, run_config=callboard_run_config())`` in a `callboard.workflow`; the agent stays as it is. The
import turns the SDK's tracing off in workflows.
"""

from callboard.adapters.versions import require

require("openai-agents", extra="openai-agents", at_least="0.24", below="1")

from callboard.adapters.openai_agents.in_steps import refuse_approvals  # noqa: E402
from callboard.adapters.openai_agents.mcp_servers import CallboardMCPServer, refuse_connections  # noqa: E402
from callboard.adapters.openai_agents.run_config import callboard_run_config  # noqa: E402
from callboard.adapters.openai_agents.sessions import CallboardSession, RecordedSession  # noqa: E402
from callboard.adapters.openai_agents.tracing import install  # noqa: E402

__all__ = ["CallboardMCPServer", "CallboardSession", "RecordedSession", "callboard_run_config"]

install()
refuse_approvals()
refuse_connections()
