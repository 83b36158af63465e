"""How the interpreter has a call provider do its work.

Most providers are one effect that a worker carries out. Those in `NATIVE` are made of the stage's own effects, a model
turn, a question, a child run, so that they park, time out and show up in traces as what they are.
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
    """The mock's delay is a timer of the run, so that it survives a crash and a waiting run may be parked."""
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
    """Have a provider do its work; whatever goes wrong is its Result."""
    native = NATIVE.get(request.contract.uri)
    reply = await (native(request) if native is not None else carry_out(request))
    if await compute(request.stage, lambda: _nests_too_deep(reply)):
        return Reply(failure(MALFORMED, f"the provider's answer {TOO_DEEP}"))
    return reply


def _nests_too_deep(reply: Reply) -> bool:
    envelope = 1 if is_success(reply.result) else CHAIN_DEPTH_MAX
    return too_deep(bound_chain(reply.result), DEPTH_MAX + envelope) or too_deep(reply.metadata, DEPTH_MAX + 1)
