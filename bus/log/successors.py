"""Successors: runs that continue a run which has ended. The ``run.end`` of the first names the second.

Runs that continue one another are a chain.
"""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from callboard.bus.events import Event, RunEnd
from callboard.bus.log.port import LogReader
from callboard.bus.log.recorded import Recorded
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef

SUCCESSOR_KEY = "run.end"
"""The key from which the id of the successor of a run is derived."""

_NAMED = b'"successor":'


class Stop(Struct, frozen=True):
    """The command that stopped a chain of runs; ``told`` is its header `callboard.bus.commands.TOLD_HEADER`."""

    verb: str
    body: bytes
    told: str


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


async def _never_purged(ref: RunRef) -> bool:
    return False


async def find_newest(
    log: LogReader, ref: RunRef, was_purged: Callable[[RunRef], Awaitable[bool]] = _never_purged
) -> tuple[RunRef, Recorded | None]:
    """Return the run that continues a run, or the run itself, and its last event; None if it is not admitted yet.

    The ids of a chain are derived one from the other, so the newest run is found without reading all runs before it: by
    steps that double, and then by bisection. ``was_purged`` says whether a run that the log lacks was in the chain.

    :raises NoAnswer: if the log does not answer
    """
    chain = [ref]
    lasts = {0: await log.last(ref)}

    async def exists(place: int) -> bool:
        while len(chain) <= place:
            chain.append(RunRef(ref.tenant, child_id(chain[-1].run, SUCCESSOR_KEY)))
        lasts[place] = await log.last(chain[place])
        return lasts[place] is not None or await was_purged(chain[place])

    def goes_on(place: int) -> bool:
        last = lasts[place]
        return last is None or successor_of(last.event) is not None

    there, step = 0, 1
    if lasts[0] is None and not await was_purged(ref):
        return ref, None
    while goes_on(there) and await exists(there + step):
        there, step = there + step, step * 2
    missing = there + step
    while goes_on(there) and missing - there > 1:
        middle = (there + missing) // 2
        if await exists(middle):
            there = middle
        else:
            missing = middle
    if lasts[there] is None or not goes_on(there):
        return chain[there], lasts[there]
    return chain[missing], None
