"""The schema of tool sources: who serves tools, in the form of `callboard.bus.effects.ToolSource`."""

from typing import Any

from callboard.bus.effects import TOOL_CONCURRENCY_MAX, TOOL_RETRIES_MAX
from callboard.languages.flow.contracts.contract_parts import NAME, TEXT, TEXTS, describe, members
from callboard.lib.durations import DURATION

_SECONDS = describe(
    {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
    "How long a call may take, in seconds; by default as long as the worker says.",
)

_LIMITS = {
    "type": "object",
    "additionalProperties": members(
        {
            "timeout": describe({"type": "string", "pattern": DURATION}, "How long a call may take: 90s, 10m, PT10M."),
            "retries": describe(
                {"type": "integer", "minimum": 0, "maximum": TOOL_RETRIES_MAX},
                "How often a call that fails is tried again, with the same idempotency key.",
                default=0,
            ),
            "concurrency": describe(
                {"type": "integer", "minimum": 1, "maximum": TOOL_CONCURRENCY_MAX},
                "How many calls of it the run makes at once; others wait for their turn.",
            ),
        }
    ),
    "description": "By tool, how it is called.",
}

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
                "config": describe(TEXTS, "Values that the functions get; they may hold ${VARIABLE} of the worker."),
                "timeout_s": _SECONDS,
                "limits": _LIMITS,
            },
            "functions",
        ),
        _source(
            "mcp",
            {
                "name": NAME,
                "command": describe({"type": "array", "minItems": 1, "items": TEXT}, "The server's program (stdio)."),
                "url": describe(NAME, "The server's address (streamable HTTP)."),
                "headers": describe(TEXTS, "Headers for the address; values may hold ${VARIABLE} of the worker."),
                "env": describe(TEXTS, "Variables that the program gets, to the worker's variables that hold them."),
                "timeout_s": _SECONDS,
                "limits": _LIMITS,
                "scope": describe(
                    {"type": "string", "enum": ["node", "run"]},
                    "How long the server lives: as long as this call, or as long as the run.",
                    default="node",
                ),
            },
            "name",
        ),
        _source(
            "nats",
            {"subject": NAME, "tools": _TOOLS, "timeout_s": _SECONDS, "limits": _LIMITS},
            "subject",
            "tools",
        ),
        _source("scripted", {"tools": _TOOLS, "limits": _LIMITS}, "tools"),
    ],
    "description": "Who serves tools: Python functions, an MCP server, a NATS subject, or the run's script.",
}
