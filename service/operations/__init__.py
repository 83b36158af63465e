"""Operations: what commands and MCP tools both do, and say, whoever asked for it."""
