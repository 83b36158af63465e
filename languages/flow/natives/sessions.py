"""The providers whose calls have sessions: ``model``, which runs the agent loop of all languages, and ``tool``, which
opens a tool, calls it once, and closes it.

A session is its own node, so that tools stay open from turn to turn. A call without a session belongs to its place,
which closes everything when the effect has its outcome.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.bus.effects import (
    Failure,
    ModelRequest,
    PythonTools,
    ToolLimits,
    ToolSource,
    ToolSpec,
    Usage,
    user,
)
from callboard.bus.model_names import given_parameters
from callboard.bus.paths import last_id
from callboard.languages.agent import (
    ConversationLimits,
    ConversationResult,
    Offer,
    Refusal,
    converse,
    meter_node,
    read_structured_answer,
)
from callboard.languages.approvals.approvals import make_consent, run_approvals
from callboard.languages.approvals.member import MEMBER, read_terms
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.computation import compute
from callboard.languages.flow.approvals import find_fault, refuse_call
from callboard.languages.flow.dispatches import Dispatch, DispatchReply, translate_failure
from callboard.languages.flow.frame import aspect, duration_of, outcome_of
from callboard.languages.flow.result import as_failure, is_success, success
from callboard.languages.json_schema import schema_fault, violations
from callboard.languages.language import Cancelled, Failed, Node, Ok, Toolbox
from callboard.languages.tool_names import DistinctTools
from callboard.lib.json_types import JSON

Session = Callable[[Dispatch, Node], Awaitable[DispatchReply]]


async def in_session(request: Dispatch, name: str, work: Session) -> DispatchReply:
    """Do a provider's work in its own node, ``<path of the call>.<name>``, and always leave the node."""
    node = request.stage.enter(aspect(request.node.path, name), "call", name=name)
    try:
        reply = await work(request, node)
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    result = reply.result
    node.exit(outcome_of(result), error=None if is_success(result) else as_failure(result))
    return reply


def tool_sources(written: list[dict[str, Any]]) -> list[ToolSource]:
    """Convert tool sources that fit `callboard.languages.flow.contracts.sources.TOOL_SOURCE`."""
    return msgspec.convert(written, list[ToolSource], strict=False)


TURNS_WITH_TOOLS = 20
"""The default number of turns of a conversation with tools."""

TEXT_SHOWN_CHARS_MAX = 2_000
"""How many characters of an answer that does not fit the schema the failure shows."""

_MODEL_CODES: Mapping[str, tuple[str, str]] = {
    "model.timeout": ("Timeout", "timeout"),
    "model.rate_limited": ("Throttled", "error"),
    "model.overloaded": ("Unavailable", "error"),
    "model.unreachable": ("Unavailable", "error"),
    "model.refused": ("Refused", "error"),
    "agent.cut_short": ("CutShort", "error"),
    "agent.max_turns": ("OutOfTurns", "error"),
    "approval.expired": ("NotDecided", "timeout"),
}


async def ask_model(request: Dispatch) -> DispatchReply:
    """Have a model answer."""
    return await in_session(request, "model", _converse)


async def _converse(request: Dispatch, node: Node) -> DispatchReply:
    schema = request.arguments.get("schema")
    if schema is not None and (fault := schema_fault(schema)):
        return DispatchReply(request.make_failure("InvalidOutput", f"the schema is none: {fault}", retryable=False))
    if (wrong := find_fault(request)) is not None:
        return DispatchReply(wrong)
    sources = tool_sources(request.arguments.get("tools", []))
    async with AsyncExitStack() as stack:
        toolbox: Toolbox | None = None
        if sources:
            toolbox = node.toolbox(sources)
            opened = await stack.enter_async_context(toolbox)
            if isinstance(opened, Failed):
                return DispatchReply(translate_failure(request, opened.error, {}, "ToolsUnavailable"))
        names = DistinctTools(node)

        def tools_now() -> list[ToolSpec]:
            return names.name(toolbox.specs if toolbox is not None else [])

        tools = tools_now()
        turns_max: int = request.arguments.get("max_turns", TURNS_WITH_TOOLS if tools else 1)
        spent = list[Usage]()
        asked = _to_request(request.arguments, request.input, tools)
        consent = make_consent(
            request.stage, read_terms(request.arguments.get(MEMBER)), f"step {last_id(request.node.path)}"
        )
        policy = ConversationLimits(turns_max, consent=consent)
        said = await converse(
            request.stage,
            meter_node(node, spent.append),
            asked,
            policy,
            lambda: Offer(tools_now(), policy),
        )
    return await compute(request.stage, lambda: _conversation_to_reply(request, said, sum(spent, Usage())))


def _to_request(arguments: dict[str, Any], input: JSON, tools: list[ToolSpec]) -> ModelRequest:
    prompt = arguments.get("prompt", input)
    text = prompt if isinstance(prompt, str) else msgspec.json.encode(prompt).decode()
    return ModelRequest(
        model=arguments.get("model"),
        system=arguments.get("system", ""),
        messages=[user(text)],
        tools=tools,
        schema=arguments.get("schema"),
        max_output_tokens=arguments.get("max_output_tokens"),
        temperature=arguments.get("temperature"),
        parameters=given_parameters(arguments),
    )


def _conversation_to_reply(request: Dispatch, said: ConversationResult, usage: Usage) -> DispatchReply:
    metadata = _metadata(said, usage)
    if said.error is not None:
        return DispatchReply(translate_failure(request, _failure(said.error), _MODEL_CODES), metadata)
    assert said.reply is not None, "a conversation without an error has a reply"
    schema = request.arguments.get("schema")
    if schema is None:
        return DispatchReply(success(said.reply.text), metadata)
    data = read_structured_answer(said.reply, asked=True)
    problems = violations(schema, data)
    if not problems:
        return DispatchReply(success(data), metadata)
    details = {"problems": problems, "text": said.reply.text[:TEXT_SHOWN_CHARS_MAX]}
    message = f"the answer does not fit the schema: {'; '.join(problems)}"
    return DispatchReply(request.make_failure("InvalidOutput", message, details=details, retryable=True), metadata)


def _failure(error: Failure) -> Failure:
    """Return a failure with the code of a refusal if a stop reason reports one."""
    match error.details:
        case {"stop_reason": "refusal" | "content_filter" | "safety"}:
            return msgspec.structs.replace(error, code="model.refused")
        case _:
            return error


def _metadata(said: ConversationResult, usage: Usage) -> dict[str, JSON]:
    metadata: dict[str, JSON] = {
        "turns": said.turns,
        "usage": msgspec.to_builtins(usage),
        "tools": [call.use.tool for call in said.calls],
    }
    if said.reply is not None:
        metadata["stop_reason"] = said.reply.stop_reason
        if said.reply.response_model:
            metadata["model"] = said.reply.response_model
    return metadata


TIMEOUT_MIN_S = 0.001
"""The least timeout. Tools treat a timeout of zero as none, so a timeout that has passed becomes this."""

_TOOL_CODES: Mapping[str, tuple[str, str]] = {
    "tool.timeout": ("Timeout", "timeout"),
    "tool.unavailable": ("Unavailable", "error"),
    "tool.refused": ("NotAllowed", "error"),
    "tool.unknown": ("UnknownTool", "error"),
    "tool.invalid_input": ("InvalidInput", "error"),
    "tool.bad_output": ("InvalidOutput", "error"),
    "tool.output_too_large": ("InvalidOutput", "error"),
    "tool.crashed": ("Crashed", "error"),
}


async def call_tool(request: Dispatch) -> DispatchReply:
    """Call a tool."""
    return await in_session(request, "tool", _call)


async def _call(request: Dispatch, node: Node) -> DispatchReply:
    if (fault := find_fault(request)) is not None:
        return DispatchReply(fault)
    source, tool = _tool_source(request.arguments)
    metadata: dict[str, Any] = {"tool": tool}
    async with node.toolbox([source]) as opened:
        if isinstance(opened, Failed):
            return DispatchReply(translate_failure(request, opened.error, _TOOL_CODES, "Unavailable"), metadata)
        metadata |= next(({"server": spec.server} for spec in opened.value if spec.name == tool), {})
        input = request.arguments.get("arguments", request.input)
        if terms := read_terms(request.arguments.get(MEMBER), tool):
            spec = next((spec for spec in opened.value if spec.name == tool), ToolSpec(tool))
            call = ProposedCall(spec, input, f"step {last_id(request.node.path)}", node.path)
            match await run_approvals(request.stage).decide(node, "tool.0.0", call, terms):
                case Refusal() as refusal:
                    return DispatchReply(refuse_call(request, refusal), metadata)
                case Ok(input):
                    pass
        outcome = await node.tool("tool.0.0", tool, input)
    if isinstance(outcome, Failed):
        return DispatchReply(translate_failure(request, outcome.error, _TOOL_CODES), metadata)
    return DispatchReply(success(outcome.value), metadata)


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
