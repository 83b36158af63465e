"""The schema of tool sources: who serves tools, in the form of `callboard.bus.effects.ToolSource`."""

from typing import Any

from callboard.languages.flow.contracts.shipping import NAME, TEXT, TEXTS, members, told

_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "default": 60}

_TOOLS = {
    "type": "array",
    "minItems": 1,
    "items": members({"name": NAME, "description": TEXT, "input_schema": {"type": "object"}}, "name"),
    "description": "The tools that are served.",
}

_FUNCTIONS = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"type": "string", "pattern": "^[A-Za-z_][\\w.]*:[A-Za-z_][\\w.]*$"},
    "description": "Names of tools to package.module:function.",
}


def _source(kind: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return members({"type": {"const": kind}, **properties}, "type", *required)


TOOL_SOURCE = {
    "oneOf": [
        _source(
            "python",
            {
                "functions": _FUNCTIONS,
                "config": told(TEXTS, "Values that the functions get; they may hold ${VARIABLE} of the worker."),
                "timeout_s": _SECONDS,
            },
            "functions",
        ),
        _source(
            "mcp",
            {
                "name": NAME,
                "command": told({"type": "array", "minItems": 1, "items": TEXT}, "The server's program (stdio)."),
                "url": told(NAME, "The server's address (streamable HTTP)."),
                "headers": told(TEXTS, "Headers for the address; values may hold ${VARIABLE} of the worker."),
                "env": told(TEXTS, "Variables that the program gets, to the worker's variables that hold them."),
                "timeout_s": _SECONDS,
            },
            "name",
        ),
        _source("nats", {"subject": NAME, "tools": _TOOLS, "timeout_s": _SECONDS}, "subject", "tools"),
        _source("scripted", {"tools": _TOOLS}, "tools"),
    ],
    "description": "Who serves tools: Python functions, an MCP server, a NATS subject, or the run's script.",
}
