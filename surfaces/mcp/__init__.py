"""The MCP server: workflows as tools for agents, over stdio or streamable HTTP."""
