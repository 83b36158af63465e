"""The tools of an agent of the SDK in a workflow: each call is a step, and waits for a person's consent if it needs it.

The SDK calls the tools of the list that it has passed to the model. A durable model replaces its function tools there,
so the agent and its tools stay as they are. An agent that is a tool runs in the workflow, where its own turns and calls
are recorded; the tools of an MCP server are effects already.
"""

import asyncio
import copy
import inspect
import typing
from collections.abc import Collection, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import Any

from agents import (
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    HostedMCPTool,
    LocalShellTool,
    MCPToolApprovalFunction,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
    ShellTool,
    Tool,
    ToolErrorFormatterArgs,
    ToolOriginType,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.tool import get_function_tool_origin
from agents.tool_context import ToolContext
from msgspec import Struct

from callboard.adapters.openai_agents.conversations import CancelledItself, in_context
from callboard.adapters.shared_objects import Changes, SharedObject
from callboard.bus.effects import ToolSpec
from callboard.bus.work import Work
from callboard.languages.agent import Refusal
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Failed, Node, Ok
from callboard.languages.python.approvals import Approve, decide, demands_of, named_tools
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.raised import encode_error, raised_in
from callboard.languages.python.values import NoJsonForm, codec, plain_json
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

REJECTED = "Tool execution was not approved."
"""The SDK's text to the model for a rejected call; a formatter of the SDK gets it."""

PLACE: ContextVar[str] = ContextVar("place", default="")
"""The path of the call in which agents run at present, if an agent is a tool of another."""


OUTER: ContextVar[Sequence[Approve]] = ContextVar("outer", default=())
"""The approvals that the agents demand in whose tools the caller is."""


def approvals_here(own: Sequence[Approve]) -> Sequence[Approve]:
    """Return the approvals of a configuration, with those of the agents in whose tools the caller is."""
    return [*own, *(one for one in OUTER.get() if one not in own)]


class Calls(Struct, frozen=True):
    """The calls of one turn of an agent: the path below which they are recorded, the place in the code, the name of the
    agent, the key of the turn, the terms on which a person decides about them, and the tools that run in the workflow.
    """

    above: str
    source: str
    agent: str
    turn: str
    approvals: Sequence[Approve]
    inline: Collection[str] = ()


def hosted_tools(tools: Sequence[Tool], approvals: Sequence[Approve]) -> list[str]:
    """Return the names of the tools that the provider calls without asking for consent.

    Of a server of the provider only the tools in its ``allowed_tools`` are known. Without these, each tool that
    ``approvals`` name may be one of the server, unless the agent has a function of that name.
    """
    functions = {one.name for one in tools if isinstance(one, FunctionTool)}
    found: list[str] = []
    for tool in tools:
        if isinstance(tool, HostedMCPTool):
            given: Any = tool.tool_config
            allowed: Any = given.get("allowed_tools")
            listed = allowed.get("tool_names") if isinstance(allowed, dict) else allowed
            names = sorted(named_tools(approvals) - functions) if listed is None else listed
            unasked = [name for name in names if not _asks(given, name)]
            found += unasked if _asks(given, "") else [tool.name, *unasked]
        elif not isinstance(tool, FunctionTool):
            found.append(tool.name)
    return found


def _asks(given: Any, tool: str) -> bool:
    """Return whether a provider asks for consent to calls of a tool of a server. By default it does; the name is empty
    for all tools that the settings do not list."""
    wanted: Any = given.get("require_approval")
    if not isinstance(wanted, dict):
        return wanted != "never"
    always, never = (wanted.get(name) or {} for name in ("always", "never"))
    return tool in always.get("tool_names", ()) or not (tool in never.get("tool_names", ()) or never.get("read_only"))


def make_durable(tools: list[Tool], calls: Calls) -> None:
    """Replace the function tools in a list by durable ones.

    :raises TypeError: if a tool works on this machine in a way that cannot be recorded
    """
    for index, tool in enumerate(tools):
        if isinstance(tool, FunctionTool):
            tools[index] = _Durable(tool, calls).as_tool()
        elif isinstance(tool, HostedMCPTool):
            tools[index] = replace(tool, on_approval_request=_Hosted(calls, tool.on_approval_request).decide)
        elif isinstance(tool, ComputerTool | LocalShellTool | ApplyPatchTool | CustomTool) or (
            isinstance(tool, ShellTool) and tool.executor is not None
        ):
            raise TypeError(
                f"{type(tool).__name__} {tool.name} of agent {calls.agent} works on this machine, and its calls cannot "
                "be recorded: make it a function tool, or run the agent outside of a workflow"
            )


class _Durable(Struct, frozen=True):
    """A function tool whose calls are effects."""

    tool: FunctionTool
    calls: Calls

    def as_tool(self) -> FunctionTool:
        durable = copy.copy(self.tool)
        durable.on_invoke_tool = self.invoke
        durable.needs_approval = False
        return durable

    async def invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        """Call the tool for the model, as the SDK does."""
        loop = current_loop()
        assert loop is not None, "durable tools are made for one workflow"
        node = loop.place(self.tool.name, self.calls.source, above=self.calls.above)
        given = parse(arguments)
        decided = await self._decide(loop, node, context, given)
        if isinstance(decided, Refusal):
            return await self._describe_refusal(context, decided)
        if decided.value != given:
            given, arguments = decided.value, canonical(decided.value).decode()
        origin = get_function_tool_origin(self.tool)
        is_agent = origin is not None and origin.type is not ToolOriginType.FUNCTION
        if is_agent or self.tool.name in self.calls.inline:
            place, outer = PLACE.set(node.path), OUTER.set(self.calls.approvals)
            try:
                return await self.tool.on_invoke_tool(context, arguments)
            finally:
                PLACE.reset(place)
                OUTER.reset(outer)
        return await self._call(loop, node, context, arguments, given)

    async def _decide(
        self, loop: WorkflowLoop, node: Node, context: ToolContext[Any], given: JSON
    ) -> Ok[JSON] | Refusal:
        """Return the arguments with which the call may be made, or why it must not be made."""
        calls, tool = self.calls, self.tool
        terms = list(calls.approvals)
        if await needs_approval(tool, context, given):
            terms.append(Approve(tools=[tool.name]))
        call = ProposedCall(spec_of(tool), given, f"agent {calls.agent}", calls.above, calls.turn)
        return await decide(loop, node, "tool.1.0", call, terms)

    async def _describe_refusal(self, context: ToolContext[Any], refusal: Refusal) -> str:
        """Return what the model reads of a call that is not made.

        :raises StepFailed: if the agent fails for it
        """
        if refusal.final:
            raise StepFailed(refusal.error)
        formatter = context.run_config.tool_error_formatter if context.run_config is not None else None
        if formatter is None:
            return refusal.error.message
        told = formatter(
            ToolErrorFormatterArgs(
                kind="approval_rejected",
                tool_type="function",
                tool_name=self.tool.name,
                call_id=context.tool_call_id,
                default_message=REJECTED,
                run_context=context,
            )
        )
        return (await _await(told)) or refusal.error.message

    async def _call(
        self, loop: WorkflowLoop, node: Node, context: ToolContext[Any], arguments: str, given: JSON
    ) -> Any:
        outputs = _Outputs(self.tool)
        shared = SharedObject(context.context)
        variables = copy_context()

        async def call() -> JSON:
            mine = copy.copy(context)
            mine.context = shared.borrow()
            output = await in_context(variables, lambda: self.tool.on_invoke_tool(mine, arguments))
            changes = shared.changes(mine.context)
            return {**outputs.encode(output), **({"context": changes} if changes else {})}

        work = Work(
            name=self.tool.name,
            call=call,
            is_coroutine=True,
            encode=plain_json,
            retryable=lambda _error: False,
            first=node.key("step"),
            note=encode_error,
            demands=demands_of(self.calls.approvals),
        )
        request: JSON = {"step": self.tool.name, "arguments": given}
        outcome = await loop.effect(node, node.call("step", "step", request, work=work))
        if isinstance(outcome, Failed):
            failed = StepFailed(outcome.error)
            if failed.type == CancelledItself.__name__:
                # The SDK reports it to the model.
                raise asyncio.CancelledError
            raise raised_in(failed)
        recorded: Any = outcome.value
        changes: Changes = recorded.get("context", {})
        shared.apply(changes)
        return outputs.decode(recorded)


class _Hosted(Struct, frozen=True):
    """The tools of an MCP server that the provider calls. It asks about calls that need consent. ``own`` is the
    function of a user that decides too."""

    calls: Calls
    own: MCPToolApprovalFunction | None

    async def decide(self, request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
        """Have a person decide about a call.

        :raises StepFailed: if the agent fails for it
        """
        loop = current_loop()
        assert loop is not None, "durable tools are made for one workflow"
        asked, calls = request.data, self.calls
        node = loop.place(asked.name, calls.source, above=calls.above)
        call = ProposedCall(
            ToolSpec(asked.name), parse(asked.arguments), f"agent {calls.agent}", calls.above, calls.turn
        )
        itself = [Approve(tools=[asked.name])] if self.own is None else []
        decided = await decide(loop, node, "tool.1.0", call, [*calls.approvals, *itself])
        if isinstance(decided, Ok):
            return {"approve": True} if self.own is None else await _await(self.own(request))
        if decided.final:
            raise StepFailed(decided.error)
        return {"approve": False, "reason": decided.error.message}


async def _await(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def spec_of(tool: FunctionTool) -> ToolSpec:
    """Return a tool as it is shown to people; one of an MCP server also has the name by which the server knows it."""
    server, own_name, _ = tool._mcp_tool_binding or ("", "", None)  # pyright: ignore[reportPrivateUsage]
    return ToolSpec(tool.name, tool.description, tool.params_json_schema, server=server, own_name=own_name)


async def needs_approval(tool: FunctionTool, context: ToolContext[Any], given: JSON) -> bool:
    """Return whether a tool itself asks for consent. If it decides by the arguments, those that cannot be read need
    it."""
    policy = tool.needs_approval
    if isinstance(policy, bool) or not isinstance(given, dict):
        return bool(policy)
    return bool(await _await(policy(context, given, context.tool_call_id)))


def parse(arguments: str) -> JSON:
    """Return the arguments of a call; as text, if they are not JSON."""
    try:
        return decode_json(arguments) if arguments.strip() else {}
    except JSON_ERRORS:
        return arguments


class _Outputs:
    """The outputs of a function tool as JSON: by the annotation of its function, else as the SDK writes them for a
    model. The members of a recorded call are its ``output`` and, for one that does not fit the annotation, ``plain``.
    """

    def __init__(self, tool: FunctionTool) -> None:
        self._codec = None
        try:
            annotation = typing.get_type_hints(tool.__wrapped__).get("return", Any)
            self._codec = codec(annotation) if annotation is not Any else None
        except (AttributeError, NameError, NoJsonForm, TypeError):
            # Not made from a function, or its type has no form in JSON: outputs are text, as for the model.
            pass

    def encode(self, output: Any) -> dict[str, JSON]:
        """Return the members that are recorded."""
        if self._codec is None:
            return {"output": _to_plain(output)}
        try:
            return {"output": self._codec.encode(output)}
        except (TypeError, ValueError):
            return {"output": _to_plain(output), "plain": True}

    def decode(self, recorded: dict[str, JSON]) -> Any:
        """Return the output of recorded members."""
        found = recorded["output"]
        return found if self._codec is None or recorded.get("plain") else self._codec.decode(found)


def _to_plain(output: Any) -> JSON:
    """Return an output that the model reads in the same way as the given one."""
    if isinstance(output, list | tuple) and output and all(_is_content(one) for one in output):
        return [plain_json(one) for one in output]
    if _is_content(output):
        return plain_json(output)
    try:
        plain = plain_json(output)
    except (TypeError, ValueError):
        return str(output)
    return plain if repr(plain) == repr(output) else str(output)


def _is_content(output: Any) -> bool:
    """Return whether the model reads an output as a text, image or file, and not as the text of a value."""
    return isinstance(output, ToolOutputText | ToolOutputImage | ToolOutputFileContent)
