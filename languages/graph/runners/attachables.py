"""Runners of TOOL and MEMORY nodes that are wired into the graph instead of attached to an agent."""

from msgspec.structs import replace

from callboard.bus.effects import ToolSpec
from callboard.languages.agent import Refusal
from callboard.languages.approvals.desk import desk_of
from callboard.languages.approvals.member import MEMBER, read_terms
from callboard.languages.approvals.question import Call
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.memory import request
from callboard.languages.graph.rules import MEMORY_TEMPLATES
from callboard.languages.graph.times import seconds_between
from callboard.languages.graph.tools import resolve_tools
from callboard.languages.graph.work import NodeFailed, Outputs, Work, failed_effect, result
from callboard.languages.language import Failed, Ok
from callboard.lib.json_types import JSON


async def tool(work: Work) -> Outputs:
    """TOOL: call one tool; the payload has its result, or ``success: false`` if the call failed.

    :raises NodeFailed: if the call needs approval and is rejected
    """
    name, arguments = await work.compute(_tool_call)
    start = work.stage.now()
    async with work.node.toolbox(resolve_tools(work.spec, work.context).sources) as opened:
        if isinstance(opened, Failed):
            raise failed_effect(opened.error)
        if terms := read_terms(work.spec.given.get(MEMBER)):
            spec = next((spec for spec in opened.value if spec.name == name), ToolSpec(name))
            call = Call(spec, arguments, f"node {work.spec.name or work.spec.id}", work.node.path)
            match await desk_of(work.stage).decide(work.node, "tool.0.0", call, terms):
                case Refusal(error):
                    # The node's retries would ask the same person again.
                    raise NodeFailed(error.code, error.message, final=True)
                case Ok(arguments):
                    pass
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


def _tool_call(work: Work) -> tuple[str, JSON]:
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


OPERATIONS = {
    "VECTOR_DATABASE": "search",
    "KEY_VALUE_STORE": "get",
    "CONVERSATION_BUFFER": "store",
}
"""The default operation of each subtype; that of all others is ``retrieve``."""


async def memory(work: Work) -> Outputs:
    """MEMORY: perform one operation; the payload is the memory's answer."""
    given = text_of(work.setting("operation")) or text_of(work.input_member("operation"))
    operation = given or OPERATIONS.get(work.spec.subtype, "retrieve")
    asked = await work.compute(_memory_request, operation)
    outcome = await work.node.call("memory", "memory", asked)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    return result(outcome.value)


def _memory_request(work: Work, operation: str) -> dict[str, JSON]:
    """Make the request to the memory, with the templates in the node's configurations filled in."""
    spec = work.spec
    if work.rules >= MEMORY_TEMPLATES:
        configured = {name: work.render(value) for name, value in spec.configurations.items()}
        spec = replace(spec, configurations=configured)
    return request(work, spec, operation, input=work.inputs.get(RESULT))
