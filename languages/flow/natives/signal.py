"""The ``signal`` provider: waits for a signal whose data matches."""

from callboard.languages.flow.dispatches import Dispatch, Reply
from callboard.languages.flow.frame import duration_of
from callboard.languages.flow.result import success
from callboard.languages.language import Instant, Ok, SignalArrived
from callboard.lib.json_types import JSON


async def await_signal(request: Dispatch) -> Reply:
    """Wait for a signal."""
    stage, node = request.stage, request.node
    timeout = request.arguments.get("timeout")
    if timeout is None:
        return _to_reply(await _signal(request, None))
    due = duration_of(timeout).after(stage.now())
    raced = await stage.within(due, _signal(request, due), node=node, slot="bound")
    if isinstance(raced, Ok):
        return _to_reply(raced.value)
    message = f"no signal {request.arguments['name']!r} within {timeout}"
    return Reply(request.make_failure("Timeout", message, type="timeout"))


async def _signal(request: Dispatch, due: Instant | None) -> SignalArrived:
    return await request.node.signal("signal", request.arguments["name"], request.arguments.get("match"), due)


def _to_reply(signal: SignalArrived) -> Reply:
    metadata: dict[str, JSON] = {"name": signal.name}
    if signal.by is not None:
        metadata["by"] = signal.by
    return Reply(success(signal.data), metadata)
