"""Patience: a model's turn that its provider puts off is asked again when the provider takes it. Pure.

The outcome of such a turn says when (`callboard.bus.model_waits`). Until then the node sleeps on a timer, so the run
leaves the worker's memory, survives it, and can be cancelled. Each repetition has another slot.
"""

from callboard.bus.effects import ModelReply, ModelRequest
from callboard.bus.model_waits import resume_at
from callboard.languages.language import Failed, Node, Ok

WAITS_MAX = 24
"""How often one turn is put off; then it fails as its last outcome says."""


async def patient_turn(node: Node, slot: str, request: ModelRequest) -> tuple[str, Ok[ModelReply] | Failed]:
    """Carry out one turn; return the slot of the call that the provider took, and its outcome."""
    asked = slot
    for wait in range(1, WAITS_MAX + 1):
        outcome = await node.turn(asked, request)
        until = resume_at(outcome.error) if isinstance(outcome, Failed) else None
        if until is None:
            return asked, outcome
        node.progress(f"the provider takes the turn later: it is asked again at {until:%Y-%m-%d %H:%M:%S %Z}")
        await node.sleep(f"{slot}.wait.{wait}", until, "wait")
        asked = f"{slot}.again.{wait}"
    return asked, await node.turn(asked, request)
