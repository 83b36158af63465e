"""The flow interpreter: runs the root frame and returns the end of the run."""

from typing import Any

from callboard.languages.computation import compute
from callboard.languages.flow.document import Flow
from callboard.languages.flow.frame import Completed, FlowRun, Frame, chain_of, make_argument_failure, outcome_of
from callboard.languages.flow.graph import run_graph
from callboard.languages.flow.middleware_stack import run_stack
from callboard.languages.flow.result import Result, as_failure, is_success
from callboard.languages.flow.shipped_providers import CONTRACTS
from callboard.languages.flow.temporal import format_instant
from callboard.languages.language import Cancelled, End, Stage
from callboard.languages.plan import Plan
from callboard.languages.provider_contracts import Contract, contract_of
from callboard.lib.json_types import JSON

ROOT = "main"
"""The path of the root frame."""


async def interpret(plan: Plan[Flow], stage: Stage) -> End:
    """Execute a flow. ``results`` of the End is the root frame's Result, ``output`` the value of a success."""
    execution = FlowRun(stage, _contracts(stage), run_frame)
    try:
        completed = await run_frame(execution, plan.definition.document, ROOT, plan.input, plan.arguments)
    except Cancelled as cancelled:
        chain = chain_of(cancelled)
        # If a clean-up failed during the cancellation, the run ends with its failure.
        status = "cancelled" if chain["code"] == "System.Cancelled" else "failed"
        return End(status, results=chain, error=as_failure(chain))
    result = completed.result
    if is_success(result):
        return End("completed", result["value"], result)
    return End("failed", results=result, error=as_failure(result))


def _contracts(stage: Stage) -> dict[str, Contract]:
    """Return the contracts of this run: the shipped ones, and those of the worker that began the run."""
    recorded = stage.info.environment.providers
    return {**CONTRACTS, **{uri: contract_of(document) for uri, document in recorded.items()}}


async def run_frame(execution: FlowRun, flow: Flow, path: str, input: JSON, arguments: dict[str, Any]) -> Completed:
    """Run a flow in a new frame."""
    stage = execution.stage
    node = stage.enter(path, "frame", node=flow.name or "flow", input=input)
    frame = Frame(execution, flow, path, input)
    try:
        result = await _result(frame, arguments)
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    metadata = {"enteredAt": frame.entered_at, "exitedAt": format_instant(stage.now())}
    node.exit(outcome_of(result), result, None if is_success(result) else as_failure(result))
    return Completed(result, input, frame.vars, metadata)


async def _result(frame: Frame, arguments: dict[str, Any]) -> Result:
    parameters = frame.flow.parameters
    await frame.stage.breathe()
    violation = await compute(frame.stage, lambda: parameters.find_violation(arguments))
    if violation is not None:
        # The stack is not entered: this failure is the frame's Result.
        return make_argument_failure("arguments", violation)
    frame.vars = {**parameters.defaults, **arguments}
    return await run_stack(
        frame, frame.flow.middleware, frame.path, frame.input, {}, lambda value: run_graph(frame, value)
    )
