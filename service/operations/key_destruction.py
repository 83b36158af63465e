"""Forgetting: a key is destroyed, and with it all that runs of that key have said, wherever their events may be."""

from collections.abc import Sequence

from callboard.bus.errors import CallboardError
from callboard.bus.nats.jetstream import JetStreamLog


class KeyUnknown(CallboardError):
    """There is no such key, or none any more."""

    def __init__(self, name: str) -> None:
        super().__init__("key.unknown", "no run has been encrypted with a key of this name that is still there", name)


class KeyInUse(CallboardError):
    """Runs that are encrypted with the key go on, and could not."""

    def __init__(self, name: str, runs: Sequence[str]) -> None:
        few = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
        remedy = "Wait for their end, or cancel or kill them."
        super().__init__("key.in_use", f"runs that are encrypted with it go on: {few}", name, remedy)


async def forget(log: JetStreamLog, tenant: str, name: str, going_on: Sequence[str]) -> None:
    """Destroy a key of a tenant; ``going_on`` are the runs of it that have not ended.

    :raises KeyInUse: if there are such
    :raises KeyUnknown: if there is no such key
    :raises NoAnswer: if the log does not answer
    """
    if going_on:
        raise KeyInUse(name, going_on)
    if not await log.keys.destroy(tenant, name):
        raise KeyUnknown(name)
