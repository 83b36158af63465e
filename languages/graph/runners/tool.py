"""The runner of TOOL nodes that are in the graph themselves: one call of one tool."""

from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.times import seconds_between
from callboard.languages.graph.tools import resolve_tools
from callboard.languages.graph.work import NodeFailed, Outputs, Work, failed_effect, result
from callboard.languages.language import Failed
from callboard.lib.json_types import JSON


async def tool(work: Work) -> Outputs:
    """TOOL: a tool's result; what the tool itself refuses is ``success: false``."""
    name, arguments = await work.compute(_call)
    start = work.stage.now()
    async with work.node.toolbox(resolve_tools(work.spec, work.context).sources) as opened:
        if isinstance(opened, Failed):
            raise failed_effect(opened.error)
        outcome = await work.node.tool("tool.0.0", name, arguments, id=text_of(work.input_member("call_id")))
    failed = isinstance(outcome, Failed)
    payload: dict[str, JSON] = {
        "result": None if failed else outcome.value,
        "success": not failed,
        "error_message": outcome.error.message if failed else "",
        "execution_time": seconds_between(start, work.stage.now()),
        "cached": False,
    }
    return result(payload, tool_name=name, tool_parameters=arguments, tool_result=payload["result"])


def _call(work: Work) -> tuple[str, JSON]:
    """Return the tool's name and its arguments.

    :raises NodeFailed: if no tool is named
    """
    name = text_of(work.input_member("tool_name")) or work.text("tool_name")
    if not name:
        raise NodeFailed("graph.configuration", "no tool is named (tool_name)", final=True)
    arguments = next(
        (given for key in ("function_args", "args") if (given := work.input_member(key)) is not None), None
    )
    if arguments is None:
        arguments = work.render(work.setting("function_args", "args")) or {}
    return name, arguments
