"""The contract of the ``tool`` provider: one call of a tool."""

from callboard.languages.approvals.member import ONE_TOOL
from callboard.languages.flow.contracts.contract_parts import DURATION, NAME, TEXT, define_provider, describe, members
from callboard.languages.flow.contracts.sources import TOOL_SOURCE

TOOL = define_provider(
    "tool",
    "Tool",
    "Calls one tool: a Python function, a tool of an MCP server, one that answers on NATS, or one of the run's script. "
    "The value is its output.",
    parameters=members(
        {
            "python": describe(
                {"type": "string", "pattern": "^[A-Za-z_][\\w.]*:[A-Za-z_][\\w.]*$"},
                "A Python function as package.module:function; the short form of a source.",
            ),
            "source": TOOL_SOURCE,
            "tool": describe(NAME, "The tool's name in its source."),
            "arguments": describe({"type": "object"}, "The tool's input; by default the call's input."),
            "timeout": describe(
                DURATION, "The longest time the call may take; by default what its source says, or else the worker."
            ),
            "approve": ONE_TOOL,
        },
        oneOf=[{"required": ["python"]}, {"required": ["source", "tool"]}],
    ),
    metadata=members(
        {
            "tool": describe(TEXT, "The tool's name."),
            "server": describe(TEXT, "Who serves it: python, an MCP server's name …"),
        }
    ),
    failures={
        "Failed": "The tool reported a failure; details is what it reported in addition to the message.",
        "Timeout": "The tool did not answer in time; of type timeout.",
        "Unavailable": "The server of the tool cannot be started or reached.",
        "NotAllowed": "The worker does not permit this function or program to serve as a tool.",
        "UnknownTool": "The source has no tool of this name.",
        "InvalidInput": "The input does not fit the tool's schema; details lists every problem.",
        "InvalidOutput": "The output is not JSON, or too large.",
        "Crashed": "The server of the tool ended before it answered.",
        "Denied": "A person rejected the call, or nobody decided in time.",
        "NotDecided": "Nobody decided in time, and the call fails then; of type timeout.",
    },
    final=("NotAllowed", "UnknownTool", "InvalidInput", "Denied"),
)
