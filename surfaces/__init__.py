"""The surfaces: HTTP, MCP, the command line and the page. Each binds operations to names, options and wording."""
