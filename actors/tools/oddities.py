"""Faults of tools that MCP servers list: the codes of their warnings, and schemas that some model APIs refuse."""

from typing import Any

LEFT_OUT = "TOOL_LEFT_OUT"
"""The code of the warning that a listed tool is not offered."""

ADAPTED = "TOOL_ADAPTED"
"""The code of the warning that a tool is offered in another form than the server lists it."""

COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "enum")
"""Keywords that some model APIs refuse at the top of a tool's schema."""


def top_combinators(schema: dict[str, Any]) -> str:
    """Return the keywords at the top of a schema that some model APIs refuse, as a text."""
    return ", ".join(word for word in COMBINATORS if word in schema)
