"""Runners that pass on what they get: of triggers, and of nodes that no one knows."""

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.work import Outputs, Work, result


async def trigger(work: Work) -> Outputs:
    """TRIGGER: the data that the start brought."""
    return result(work.context.trigger_data)


PASSED = "graph.passed_through"
"""The code of the warning that a node did nothing of its own."""


async def passthrough(work: Work) -> Outputs:
    """The input, unchanged."""
    work.node.warn(PASSED, f"{work.spec.type}.{work.spec.subtype} does nothing here; the input is passed on")
    return result(work.inputs.get(RESULT))
