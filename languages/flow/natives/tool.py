"""The ``tool`` provider: opens a tool, calls it once, and closes it."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from callboard.bus.effects import PythonTools, ToolLimits, ToolSource, ToolSpec
from callboard.bus.paths import last_id
from callboard.languages.agent import Refusal
from callboard.languages.approvals.desk import desk_of
from callboard.languages.approvals.member import MEMBER, read_terms
from callboard.languages.approvals.question import Call
from callboard.languages.flow.approvals import find_fault, refuse_call
from callboard.languages.flow.dispatches import Dispatch, Reply
from callboard.languages.flow.frame import duration_of
from callboard.languages.flow.natives.sessions import in_session, tool_sources, translate_failure
from callboard.languages.flow.result import success
from callboard.languages.language import Failed, Node, Ok

TIMEOUT_MIN_S = 0.001
"""The least timeout. Tools treat a timeout of zero as none, so a timeout that has passed becomes this."""

_CODES: Mapping[str, tuple[str, str]] = {
    "tool.timeout": ("Timeout", "timeout"),
    "tool.unavailable": ("Unavailable", "error"),
    "tool.refused": ("NotAllowed", "error"),
    "tool.unknown": ("UnknownTool", "error"),
    "tool.invalid_input": ("InvalidInput", "error"),
    "tool.bad_output": ("InvalidOutput", "error"),
    "tool.output_too_large": ("InvalidOutput", "error"),
    "tool.crashed": ("Crashed", "error"),
}


async def call_tool(request: Dispatch) -> Reply:
    """Call a tool."""
    return await in_session(request, "tool", _call)


async def _call(request: Dispatch, node: Node) -> Reply:
    if (fault := find_fault(request)) is not None:
        return Reply(fault)
    source, tool = _tool_source(request.arguments)
    metadata: dict[str, Any] = {"tool": tool}
    async with node.toolbox([source]) as opened:
        if isinstance(opened, Failed):
            return Reply(translate_failure(request, opened.error, _CODES, "Unavailable"), metadata)
        metadata |= next(({"server": spec.server} for spec in opened.value if spec.name == tool), {})
        input = request.arguments.get("arguments", request.input)
        if terms := read_terms(request.arguments.get(MEMBER), tool):
            spec = next((spec for spec in opened.value if spec.name == tool), ToolSpec(tool))
            call = Call(spec, input, f"step {last_id(request.node.path)}", node.path)
            match await desk_of(request.stage).decide(node, "tool.0.0", call, terms):
                case Refusal() as refusal:
                    return Reply(refuse_call(request, refusal), metadata)
                case Ok(input):
                    pass
        outcome = await node.tool("tool.0.0", tool, input)
    if isinstance(outcome, Failed):
        return Reply(translate_failure(request, outcome.error, _CODES), metadata)
    return Reply(success(outcome.value), metadata)


def _tool_source(arguments: dict[str, Any]) -> tuple[ToolSource, str]:
    """Return the source of the tool, and its name in the source."""
    timeout = arguments.get("timeout")
    timeout_s = None if timeout is None else max(TIMEOUT_MIN_S, duration_of(timeout).seconds())
    if "source" not in arguments:
        path: str = arguments["python"]
        name = path.rpartition(":")[2].rpartition(".")[2]
        return PythonTools({name: path}, timeout_s=timeout_s), name
    [source] = tool_sources([arguments["source"]])
    name = arguments["tool"]
    if timeout_s is not None:
        limits = replace(source.limits.get(name, ToolLimits()), timeout=f"{timeout_s:f}s")
        source = replace(source, limits={**source.limits, name: limits})
    return source, name
