"""Patience: a model turn that its provider postpones is repeated when the provider accepts it. Pure.

The outcome of such a turn has the time (`callboard.bus.model_waits`). Until then the node sleeps on a timer, so the run
can be parked, continued by another worker, and cancelled. Each repetition has its own slot.
"""

from callboard.bus.effects import ModelReply, ModelRequest
from callboard.bus.model_waits import AGAIN_SLOT, WAIT_SLOT, resume_at
from callboard.bus.work import TurnWork
from callboard.languages.language import Failed, Node, Ok

WAITS_MAX = 24
"""How often one turn may be postponed; then it fails with its last outcome."""


async def patient_turn(
    node: Node, slot: str, request: ModelRequest, work: TurnWork | None = None
) -> tuple[str, Ok[ModelReply] | Failed]:
    """Carry out one turn, by ``work`` if it is given.

    Return the slot of the call that the provider accepted, and its outcome.
    """
    asked = slot
    for wait in range(1, WAITS_MAX + 1):
        outcome = await node.turn(asked, request, work=work)
        until = resume_at(outcome.error) if isinstance(outcome, Failed) else None
        if until is None:
            return asked, outcome
        node.progress(f"the provider takes the turn later: it is asked again at {until:%Y-%m-%d %H:%M:%S %Z}")
        await node.sleep(f"{slot}{WAIT_SLOT}{wait}", until, "wait")
        asked = f"{slot}{AGAIN_SLOT}{wait}"
    return asked, await node.turn(asked, request, work=work)
