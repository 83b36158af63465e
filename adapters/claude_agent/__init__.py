"""Agents of the Claude Agent SDK in workflows: each turn and each tool call is an effect of the run.

`query` and `ClaudeSDKClient` take the place of those of the SDK; outside of workflows they do the same as theirs.
"""

from callboard.adapters.versions import probe, require

require("claude-agent-sdk", extra="claude-agent", oldest="0.2.180", newest="0.2.189")
probe(
    "claude-agent-sdk",
    "claude-agent",
    "claude_agent_sdk:ClaudeSDKClient._query",
    "claude_agent_sdk:ClaudeSDKClient._custom_transport",
    "claude_agent_sdk:ClaudeSDKClient._transport",
    "claude_agent_sdk._internal.message_parser:parse_message",
    "claude_agent_sdk._internal.query:Query._sdk_mcp_bridges",
    "claude_agent_sdk._internal.query:Query._message_send",
    "claude_agent_sdk._internal.query:Query.receive_messages",
    "claude_agent_sdk._internal.query:Query.close_receive_stream",
    "claude_agent_sdk._internal.sdk_mcp_bridge:SdkMcpBridge.handle",
    "claude_agent_sdk._internal.sdk_mcp_bridge:SdkMcpBridge.aclose",
    "claude_agent_sdk._internal.transport.subprocess_cli:SubprocessCLITransport._process",
)

from callboard.adapters.claude_agent.clients import ClaudeSDKClient, query  # noqa: E402

__all__ = ["ClaudeSDKClient", "query"]
