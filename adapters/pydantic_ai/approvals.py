"""Approvals: calls of tools that wait for a person are questions of the run, as in every language.

The calls are those of tools that ``approve`` covers, and those that the agent's own tools defer for approval.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolApproved, ToolDenied

from callboard.adapters.pydantic_ai.operations import AgentRun
from callboard.bus.effects import ToolSpec
from callboard.languages.approvals.question import Call
from callboard.languages.language import Ok
from callboard.languages.python.approvals import Approve, decide
from callboard.languages.python.errors import ModelFailed

Decision = ToolApproved | ToolDenied


def needs_decision(approvals: Sequence[Approve], tool: str, arguments: dict[str, Any]) -> bool:
    """Return whether a person must decide about a call."""
    return any(one.terms().cover(tool) and (one.when is None or one.when(tool, arguments)) for one in approvals)


def ask_early(run: AgentRun, ctx: RunContext[Any], approvals: Sequence[Approve]) -> None:
    """Ask about the call that the context belongs to, while other calls of its turn are made. `decide_all` waits for
    the decision."""
    made = _made_calls(ctx)
    k = next((k for k, call in enumerate(made) if call.tool_call_id == ctx.tool_call_id), None)
    if k is not None and made[k].tool_call_id not in run.asked:
        deciding = _decide(run, made[k], k, approvals)
        run.asked[made[k].tool_call_id] = run.loop.create_task(deciding, name=f"approval.{run.turns.count}.{k}")


async def decide_all(
    run: AgentRun, ctx: RunContext[Any], requests: DeferredToolRequests, approvals: Sequence[Approve]
) -> dict[str, Decision]:
    """Return the decisions about the calls that wait for approval; a person is asked about all at once.

    :raises ModelFailed: if there is no decision in time, and the terms say that the agent then fails
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
    return {call.tool_call_id: one for (_, call), one in zip(placed, decisions, strict=True)}


def _made_calls(ctx: RunContext[Any]) -> list[ToolCallPart]:
    """Return the calls of the latest turn."""
    newest = next((one for one in reversed(ctx.messages) if isinstance(one, ModelResponse)), None)
    return [] if newest is None else newest.tool_calls


async def _decide(run: AgentRun, call: ToolCallPart, k: int, approvals: Sequence[Approve]) -> Decision:
    arguments = call.args_as_dict()
    turns = run.turns
    spec = next((one for one in run.tools if one.name == call.tool_name), ToolSpec(call.tool_name))
    asked = Call(spec, arguments, f"agent {run.agent}", turns.node.path, turns.latest)
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
