"""Destroys encryption keys, so that the content of the runs that use them can no longer be read in any copy."""

from collections.abc import Sequence

from callboard.bus.errors import CallboardError
from callboard.bus.nats.jetstream import JetStreamLog


class KeyUnknown(CallboardError):
    """The key does not exist, or has been destroyed."""

    def __init__(self, name: str) -> None:
        super().__init__("key.unknown", "the key does not exist: no run uses it, or it has been destroyed", name)


class KeyInUse(CallboardError):
    """Runs that are encrypted with the key have not ended, and could not continue without it."""

    def __init__(self, name: str, runs: Sequence[str]) -> None:
        few = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
        remedy = "Wait until they have ended, or cancel or kill them."
        super().__init__("key.in_use", f"runs that are encrypted with this key have not ended: {few}", name, remedy)


async def forget(log: JetStreamLog, tenant: str, name: str, going_on: Sequence[str]) -> None:
    """Destroy a key of a tenant; ``going_on`` are the runs with this key that have not ended.

    :raises KeyInUse: if there are such runs
    :raises KeyUnknown: if the key does not exist
    :raises NoAnswer: if the log does not answer
    """
    if going_on:
        raise KeyInUse(name, going_on)
    if not await log.keys.destroy(tenant, name):
        raise KeyUnknown(name)
