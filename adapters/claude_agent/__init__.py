"""Agents of the Claude Agent SDK in workflows: each turn and each tool call is an effect of the run.

`query` and `ClaudeSDKClient` take the place of those of the SDK; outside of workflows they do the same as theirs.
"""

from callboard.adapters.claude_agent.clients import ClaudeSDKClient, query

__all__ = ["ClaudeSDKClient", "query"]
