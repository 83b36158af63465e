"""Runners that pass data on unchanged: those of triggers, and of nodes of unknown types."""

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.work import NodeAttempt, Outputs, result


async def trigger(work: NodeAttempt) -> Outputs:
    """TRIGGER: put the trigger data out."""
    return result(work.context.trigger_data)


PASSED = "graph.passed_through"
"""The code of the warning that a node only passed its input on."""


async def passthrough(work: NodeAttempt) -> Outputs:
    """Put the input out unchanged, with a warning."""
    work.node.warn(PASSED, f"{work.spec.type}.{work.spec.subtype} does nothing here; the input is passed on")
    return result(work.inputs.get(RESULT))
