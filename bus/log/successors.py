"""Successors: runs that continue a run which has ended. The ``run.end`` of the first names the second."""

import msgspec
from msgspec import Struct

from callboard.bus.events import Event, RunEnd
from callboard.bus.log.port import Reading, Recorded
from callboard.bus.subjects import RunRef

SUCCESSOR_KEY = "run.end"
"""The key from which the id of the successor of a run is derived."""

_NAMED = b'"successor":'


class _Successor(Struct, frozen=True):
    run: str


class _End(Struct, frozen=True):
    """The member of ``run.end`` that is decoded here. It is in the event even if other values are stored separately."""

    successor: _Successor | None = None


def successor_of(last: Event) -> str | None:
    """Return the id of the run that continues a run, from the run's last event; None without one."""
    if last.type != RunEnd.type or _NAMED not in bytes(last.payload):
        return None
    try:
        successor = msgspec.json.decode(last.payload, type=_End).successor
    except msgspec.DecodeError:
        return None  # The event is damaged.
    return successor.run if successor is not None else None


async def find_newest(log: Reading, ref: RunRef) -> tuple[RunRef, Recorded | None]:
    """Return the run that continues a run, or the run itself, and its last event; None if it is not admitted yet.

    :raises NoAnswer: if the log does not answer
    """
    while True:
        last = await log.last(ref)
        successor = successor_of(last.event) if last is not None else None
        if successor is None:
            return ref, last
        ref = RunRef(ref.tenant, successor)
