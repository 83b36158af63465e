"""Calls with sessions: they are their own nodes, so that tools stay open from turn to turn.

A call without a session belongs to its place, which closes everything when the effect has its outcome.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from callboard.bus.effects import Failure, ToolSource
from callboard.languages.flow.dispatches import Dispatch, Reply, house_details
from callboard.languages.flow.frame import aspect, outcome_of
from callboard.languages.flow.result import UNSET, Result, as_envelope, as_failure, is_success
from callboard.languages.language import Cancelled, Node

Session = Callable[[Dispatch, Node], Awaitable[Reply]]


async def in_session(request: Dispatch, name: str, work: Session) -> Reply:
    """Do a provider's work in its own node, ``<path of the call>.<name>``, and always leave the node."""
    node = request.stage.enter(aspect(request.node.path, name), "call", name=name)
    try:
        reply = await work(request, node)
    except Cancelled as cancelled:
        node.exit("cancelled", error=cancelled.cause)
        raise
    result = reply.result
    node.exit(outcome_of(result), error=None if is_success(result) else as_failure(result))
    return reply


def tool_sources(written: list[dict[str, Any]]) -> list[ToolSource]:
    """Convert tool sources that fit `callboard.languages.flow.contracts.sources.TOOL_SOURCE`."""
    return msgspec.convert(written, list[ToolSource], strict=False)


def translate_failure(
    request: Dispatch, error: Failure, codes: Mapping[str, tuple[str, str]], otherwise: str = "Failed"
) -> Result:
    """Return a worker's failure as a failure of the provider; ``codes`` has the new code and type for each code."""
    code, type = codes.get(error.code, (otherwise, "error"))
    previous = UNSET if error.previous is None else as_envelope(error.previous)
    return request.make_failure(
        code, error.message, type=type, details=house_details(error), retryable=error.retryable, previous=previous
    )
