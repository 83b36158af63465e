"""Operations that the command line and the MCP tools share, and the texts that they print."""
