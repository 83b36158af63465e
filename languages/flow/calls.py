"""Calls: executions of call objects, from the evaluation of the fields to the finished Result.

`CallRun.settle` runs the target, `CallRun.finish` the arm. A Call step does one after the other; a Gather runs all arms
after all its dispatches have settled (specification: *The Call interface and Result*).

The work of most providers is one effect, which a worker carries out. Those in `NATIVE` consist of effects of the stage,
such as a model turn, a question or a child run, so that they can be parked and timed out, and traces show them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from callboard.languages.computation import compute
from callboard.languages.flow.contracts.definition import DEFINITION
from callboard.languages.flow.contracts.human import HUMAN
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.signal import SIGNAL
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.depth import DEPTH_MAX, TOO_DEEP, too_deep
from callboard.languages.flow.dispatches import MALFORMED, Dispatch, DispatchReply, Native, carry_out
from callboard.languages.flow.document import CallObject
from callboard.languages.flow.frame import (
    ConstructNode,
    Frame,
    check_arguments,
    duration_of,
    evaluate_field,
    evaluate_object,
    run_apart,
)
from callboard.languages.flow.natives.sessions import ask_model, call_tool
from callboard.languages.flow.natives.waits import ask_human, await_signal, run_definition
from callboard.languages.flow.result import (
    CHAIN_DEPTH_MAX,
    Fault,
    Result,
    bound_chain,
    failure,
    is_success,
    success,
    supersede,
)
from callboard.languages.flow.specified_providers import MOCK
from callboard.languages.flow.template import ExpressionScope
from callboard.languages.flow.temporal import format_instant
from callboard.lib.json_types import JSON


async def _mock(request: Dispatch) -> DispatchReply:
    """Carry out the mock; its delay is a timer of the run, so that it survives a crash and the run can be parked."""
    delay = request.arguments.get("delay")
    if delay is not None:
        until = duration_of(delay).after(request.stage.now())
        await request.node.sleep("delay", until, "delay")
    return await carry_out(request)


NATIVE: Mapping[str, Native] = MappingProxyType(
    {
        MOCK: _mock,
        MODEL.contract.uri: ask_model,
        TOOL.contract.uri: call_tool,
        DEFINITION.contract.uri: run_definition,
        HUMAN.contract.uri: ask_human,
        SIGNAL.contract.uri: await_signal,
    }
)


async def dispatch(request: Dispatch) -> DispatchReply:
    """Have a provider do its work; if that fails, the failure is the reply's Result."""
    native = NATIVE.get(request.contract.uri)
    reply = await (native(request) if native is not None else carry_out(request))
    if await compute(request.stage, lambda: _nests_too_deep(reply)):
        return DispatchReply(failure(MALFORMED, f"the provider's answer {TOO_DEEP}"))
    return reply


def _nests_too_deep(reply: DispatchReply) -> bool:
    envelope = 1 if is_success(reply.result) else CHAIN_DEPTH_MAX
    return too_deep(bound_chain(reply.result), DEPTH_MAX + envelope) or too_deep(reply.metadata, DEPTH_MAX + 1)


class CallRun:
    """One execution of a call object."""

    def __init__(
        self,
        frame: Frame,
        call: CallObject,
        path: str,
        inbound: JSON,
        roots: dict[str, JSON],
        index: int | None = None,
    ) -> None:
        self._frame = frame
        self._call = call
        self._roots = roots
        self._place = ConstructNode(frame.stage, path)
        self._pin = frame.stage.now()
        self._metadata: dict[str, JSON] = {"enteredAt": format_instant(self._pin)}
        self._view: dict[str, JSON] = {"input": inbound, "metadata": self._metadata}
        if index is not None:
            self._view["index"] = index
        self._window: dict[str, JSON] | None = None

    async def run(self) -> Result:
        """Run the call as a Call step does."""
        return await self.finish(await self.settle())

    # -- the target ---------------------------------------------------------------------------------------------------

    async def settle(self) -> Result:
        """Evaluate the fields, run the target, and return its Result. If a field fails, its failure is the Result."""
        call, stage = self._call, self._frame.stage
        await stage.breathe()
        try:
            scope = self._scope()
            input = await evaluate_field(stage, call.input, scope, self._view["input"])
            await stage.breathe()
            arguments = await evaluate_object(stage, call.arguments, scope)
            if call.flow is None:
                assert call.provider is not None
                await check_arguments(stage, self._frame.execution.schema(call.provider), arguments, "with")
        except Fault as fault:
            return fault.result
        self._metadata = {**self._metadata, "dispatchedAt": format_instant(self._frame.stage.now())}
        result = await (self._flow(input, arguments) if call.flow is not None else self._provider(input, arguments))
        settled = format_instant(self._frame.stage.now())
        self._metadata = {**self._metadata, "acceptedAt": settled, "exitedAt": settled}
        return result

    async def _provider(self, input: JSON, arguments: dict[str, Any]) -> Result:
        assert self._call.provider is not None
        execution = self._frame.execution
        contract = execution.contract(self._call.provider)
        reply = await dispatch(Dispatch(contract, input, arguments, self._place.node, execution.stage))
        self._window = {"provider": {"input": input, "result": reply.result, "metadata": reply.metadata}}
        return reply.result

    async def _flow(self, input: JSON, arguments: dict[str, Any]) -> Result:
        """Run the target's frame as its own task, so that deep nesting does not need a deep Python stack."""
        flow, frame = self._call.flow, self._frame
        assert flow is not None
        run = frame.execution.run_frame(frame.execution, flow, self._place.path, input, arguments)
        completed = await run_apart(frame.stage, run)
        self._window = {
            "flow": {
                "input": completed.input,
                "metadata": completed.metadata,
                "vars": completed.vars,
                "result": completed.result,
            }
        }
        return completed.result

    # -- the arms -----------------------------------------------------------------------------------------------------

    async def finish(self, settled: Result) -> Result:
        """Run the arm that the target's Result selects; if the target did not run, return its Result unchanged."""
        if self._window is None or not self._call.has_arms:
            return settled
        scope = self._scope(settled)
        await self._frame.stage.breathe()
        try:
            if is_success(settled):
                value = await evaluate_field(self._frame.stage, self._call.value, scope, settled["value"])
                await self._frame.stage.breathe()
                await self._frame.assign(self._call.on_success, scope)
                return success(value)
            await self._frame.assign(self._call.on_failure, scope)
        except Fault as fault:
            return supersede(fault.result, settled)
        return settled

    def _scope(self, settled: Result | None = None) -> ExpressionScope:
        view = {**self._view, "metadata": self._metadata}
        roots = {**self._frame.roots(), **self._roots, "call": view}
        if settled is not None and self._window is not None:
            view["result"] = settled
            roots |= self._window
        return ExpressionScope(roots, self._pin, self._place.wall_time)
