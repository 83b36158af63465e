"""The dispatch of calls to providers.

The work of most providers is one effect, which a worker carries out. Those in `NATIVE` consist of effects of the stage,
such as a model turn, a question or a child run, so that they can be parked and timed out, and traces show them.
"""

from collections.abc import Mapping
from types import MappingProxyType

from callboard.languages.computation import compute
from callboard.languages.flow.contracts.definition import DEFINITION
from callboard.languages.flow.contracts.human import HUMAN
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.signal import SIGNAL
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.depth import DEPTH_MAX, TOO_DEEP, too_deep
from callboard.languages.flow.dispatches import MALFORMED, Dispatch, Native, Reply, carry_out
from callboard.languages.flow.frame import duration_of
from callboard.languages.flow.natives.definition import run_definition
from callboard.languages.flow.natives.human import ask_human
from callboard.languages.flow.natives.model import ask_model
from callboard.languages.flow.natives.signal import await_signal
from callboard.languages.flow.natives.tool import call_tool
from callboard.languages.flow.result import CHAIN_DEPTH_MAX, bound_chain, failure, is_success
from callboard.languages.flow.specified_providers import MOCK

__all__ = ["NATIVE", "Dispatch", "Reply", "dispatch"]


async def _mock(request: Dispatch) -> Reply:
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


async def dispatch(request: Dispatch) -> Reply:
    """Have a provider do its work; if that fails, the failure is the reply's Result."""
    native = NATIVE.get(request.contract.uri)
    reply = await (native(request) if native is not None else carry_out(request))
    if await compute(request.stage, lambda: _nests_too_deep(reply)):
        return Reply(failure(MALFORMED, f"the provider's answer {TOO_DEEP}"))
    return reply


def _nests_too_deep(reply: Reply) -> bool:
    envelope = 1 if is_success(reply.result) else CHAIN_DEPTH_MAX
    return too_deep(bound_chain(reply.result), DEPTH_MAX + envelope) or too_deep(reply.metadata, DEPTH_MAX + 1)
