"""Agents of the OpenAI Agents SDK in workflows: each model request and each tool call is an effect of the run.

``Runner.run(agent, input, run_config=callboard_run_config())`` in a `callboard.workflow`; the agent stays as it is. The
import turns the SDK's tracing off in workflows.
"""

from callboard.adapters.openai_agents.mcp_servers import CallboardMCPServer
from callboard.adapters.openai_agents.run_config import callboard_run_config
from callboard.adapters.openai_agents.sessions import CallboardSession, RecordedSession
from callboard.adapters.openai_agents.tracing import install

__all__ = ["CallboardMCPServer", "CallboardSession", "RecordedSession", "callboard_run_config"]

install()
