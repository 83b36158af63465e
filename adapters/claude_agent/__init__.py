"""Agents of the Claude Agent SDK in workflows: each turn and each tool call is an effect of the run.

`query` and `ClaudeSDKClient` take the place of those of the SDK; outside of workflows they do the same as theirs.
"""

from callboard.adapters.versions import require

require("claude-agent-sdk", extra="claude-agent", at_least="0.2.189", below="0.2.190")

from callboard.adapters.claude_agent.clients import ClaudeSDKClient, query  # noqa: E402

__all__ = ["ClaudeSDKClient", "query"]
