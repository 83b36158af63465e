"""Runners that pass on what they get: of triggers, and of nodes that nobody knows."""

from callboard.languages.graph.work import Outputs, Work, result


async def trigger(work: Work) -> Outputs:
    """TRIGGER: the data that the start brought."""
    return result(work.context.trigger_data)


async def passthrough(work: Work) -> Outputs:
    """The input, unchanged."""
    return result(work.inputs.get("result"))
