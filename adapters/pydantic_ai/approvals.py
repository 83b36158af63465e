"""Approvals: calls of tools that wait for a person are questions of the run, as in every language.

The calls are those of tools that ``approve`` covers, and those that the agent's own tools defer for approval.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolApproved, ToolDenied
from pydantic_ai.toolsets import ToolsetTool

from callboard.adapters.pydantic_ai.operations import AgentRun
from callboard.bus.effects import ToolSpec
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Ok
from callboard.languages.python.approvals import Approve, decide, needs_decision
from callboard.languages.python.errors import ModelFailed

Decision = ToolApproved | ToolDenied


def ask_early(run: AgentRun, ctx: RunContext[Any], approvals: Sequence[Approve]) -> None:
    """Ask about the call that the context belongs to, while other calls of its turn are made. `decide_all` waits for
    the decision."""
    for k, call in enumerate(_made_calls(ctx)):
        if call.tool_call_id == ctx.tool_call_id:
            _ask(run, call, k, approvals)


def ask_with(run: AgentRun, ctx: RunContext[Any], approvals: Sequence[Approve]) -> None:
    """Ask about the calls of a turn whose tools require approval, when the first other call of it is made.

    The SDK defers these calls when all others have ended. It may not do so if the turn also has an output, and it
    does not if the arguments are invalid; then no question is asked early.
    """
    tools: Mapping[str, ToolsetTool[Any]] = (ctx.tool_manager.tools if ctx.tool_manager is not None else None) or {}
    made = _made_calls(ctx)
    if any(tools[call.tool_name].tool_def.kind == "output" for call in made if call.tool_name in tools):
        return
    for k, call in enumerate(made):
        tool = tools.get(call.tool_name)
        if tool is not None and tool.tool_def.kind == "unapproved" and _is_valid(tool, call, ctx):
            _ask(run, call, k, approvals)


def _is_valid(tool: ToolsetTool[Any], call: ToolCallPart, ctx: RunContext[Any]) -> bool:
    """Return whether the arguments of a call have the form that its tool expects. If the tool has a check besides, that
    is made when the SDK defers the call."""
    if tool.args_validator_func is not None:
        return False
    validator, given = tool.args_validator, call.args
    try:
        if isinstance(given, str):
            validator.validate_json(given or "{}", context=ctx.validation_context)
        else:
            validator.validate_python(given or {}, context=ctx.validation_context)
    except ValidationError:
        return False
    return True


def _ask(run: AgentRun, call: ToolCallPart, k: int, approvals: Sequence[Approve]) -> None:
    """Ask about the call with the number ``k`` of a turn, unless that is done."""
    if call.tool_call_id not in run.asked:
        deciding = _decide(run, call, k, approvals)
        run.asked[call.tool_call_id] = run.loop.create_task(deciding, name=f"approval.{run.turns.count}.{k}")


async def decide_all(
    run: AgentRun, ctx: RunContext[Any], requests: DeferredToolRequests, approvals: Sequence[Approve]
) -> dict[str, Decision]:
    """Return the decisions about the calls that wait for approval; a person is asked about all at once.

    :raises ModelFailed: without a decision in time, if the terms say that the agent then fails
    """
    made = [call.tool_call_id for call in _made_calls(ctx)]
    waiting = {call.tool_call_id: call for call in requests.approvals}
    # By their places among the calls of the turn.
    placed = [
        (k, waiting[id]) for k, id in enumerate([*made, *(id for id in waiting if id not in made)]) if id in waiting
    ]
    decisions = await asyncio.gather(
        *(run.asked.pop(call.tool_call_id, None) or _decide(run, call, k, approvals) for k, call in placed)
    )
    # Those of calls that the SDK did not defer after all.
    withdraw(run)
    return {call.tool_call_id: one for (_, call), one in zip(placed, decisions, strict=True)}


def withdraw(run: AgentRun) -> None:
    """Withdraw the questions that are open."""
    for asked in run.asked.values():
        asked.cancel()
    run.asked.clear()


def _made_calls(ctx: RunContext[Any]) -> list[ToolCallPart]:
    """Return the calls of the latest turn."""
    newest = next((one for one in reversed(ctx.messages) if isinstance(one, ModelResponse)), None)
    return [] if newest is None else newest.tool_calls


async def _decide(run: AgentRun, call: ToolCallPart, k: int, approvals: Sequence[Approve]) -> Decision:
    arguments = call.args_as_dict()
    turns = run.turns
    spec = next((one for one in run.tools if one.name == call.tool_name), ToolSpec(call.tool_name))
    asked = ProposedCall(spec, arguments, f"agent {run.agent}", turns.node.path, turns.latest)
    # A call that no terms cover was deferred by the tool itself.
    covered = needs_decision(approvals, call.tool_name, arguments)
    decided = await decide(
        run.loop, turns.node, f"tool.{turns.count}.{k}", asked, approvals if covered else [Approve()]
    )
    match decided:
        case Ok(allowed):
            return ToolApproved(override_args=allowed if isinstance(allowed, dict) and allowed != arguments else None)
        case refusal if refusal.final:
            raise ModelFailed(refusal.error)
        case refusal:
            return ToolDenied(refusal.error.message)
