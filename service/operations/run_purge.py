"""Purging runs: what may be taken out of the log, in which order, and what became of it.

A run goes with the child runs that it has started. One that others still need stays: that goes on, whose parent does,
or that forks share.
"""

from collections.abc import Collection

import msgspec

from callboard.bus import events as ev
from callboard.bus.child_ids import child_id
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import Recorded, Refused
from callboard.bus.nats.purge import Gone, finish, forks, gone, last_fork, mark_again, mark_gone
from callboard.bus.subjects import RunRef
from callboard.service.api.client import Client, UnknownRun

FORKED = "purge.forked"
"""Others share the events of a run."""


class CannotPurge(CallboardError):
    """A run is still needed."""

    def __init__(self, code: str, run: str, message: str, remedy: str) -> None:
        super().__init__(code, message, run, remedy)


class _Going(msgspec.Struct, frozen=True):
    """A run that is to go, and the ``mark`` that it is to have, None if what is left is to be removed. ``forked`` is
    the last note of a fork, None if it has been marked before."""

    ref: RunRef
    mark: Gone | None = None
    forked: int | None = None


class _Born(msgspec.Struct):
    """The member of ``run.accepted`` that is decoded here."""

    parent: ev.Parent | None = None


async def check_purge(client: Client, run: str, besides: Collection[str] = ()) -> None:
    """Check that a run may be taken out of the log with its children, if the forks ``besides`` were not there.

    :raises UnknownRun: if there is no such run, or not any more
    :raises CannotPurge: if it, or a child, is still needed
    :raises NoAnswer: if the log does not answer
    """
    if await client.log.last(client.ref(run)) is None:
        raise UnknownRun(client.ref(run))
    await _going(client, run, Gone(), "", besides)


async def purge_run(client: Client, run: str, mark: Gone) -> int:
    """Take a run and its children out of the log; return how many messages are gone, 0 if they were already.

    :raises UnknownRun: if there is no such run, and never was
    :raises CannotPurge: if it, or a child, is still needed; then nothing is gone, but where somebody forks just now
    :raises NoAnswer: if the log does not answer
    """
    going = await _going(client, run, mark, "")
    # All are marked before the first is removed: whoever finishes what was broken off needs nothing else. The run comes
    # first: where it is broken off, what is left has nobody above it any more, and all that belongs to it.
    for one in going:
        await _mark(client, one)
    return sum([await finish(client.log, one.ref) for one in going])


async def _going(client: Client, run: str, mark: Gone, within: str, besides: Collection[str] = ()) -> list[_Going]:
    """Return a run, and what goes with it; ``within`` is the parent that it goes with, and ``besides`` as above.

    :raises UnknownRun: if there is no such run, and never was
    :raises CannotPurge: if one of them is still needed
    """
    ref = client.ref(run)
    # Told anew by whoever finishes what was broken off, it stays as it was.
    before = await gone(client.log, ref)
    mark = before or mark
    recorded = await client.log.read(ref)
    if not recorded:
        if before is None:
            raise UnknownRun(ref)
        return [_Going(ref)]
    # Noted before they are looked for: whoever forks it from here on is met with at the mark.
    forked = await last_fork(client.log, ref)
    own = [item for item in recorded if item.ref == ref]
    await _check(client, ref, own, within, besides)
    found = [_Going(ref, mark, forked if before is None else None)]
    # A fork has started anew what its origin had under way, whichever child the intent names.
    for child in sorted({child_id(run, item.event.key) for item in recorded if item.event.type == ev.ChildStart.type}):
        if await client.log.last(client.ref(child)) is not None:
            found += await _going(client, child, mark, run, besides)
    return found


async def _mark(client: Client, one: _Going) -> None:
    """:raises CannotPurge: if a run has been forked since that was looked for"""
    if one.mark is None:
        return
    if one.forked is None:
        await mark_again(client.log, one.ref, one.mark)
        return
    try:
        await mark_gone(client.log, one.ref, one.mark, one.forked)
    except Refused:
        raise _shared(one.ref.run, "a new fork shares its events") from None


async def _check(client: Client, ref: RunRef, own: list[Recorded], within: str, besides: Collection[str]) -> None:
    """:raises CannotPurge: if a run is still needed"""
    last = own[-1].event
    # A child that its parent has given up while it was being admitted is performed by nobody.
    given_up = bool(within) and last.type == ev.RunAccepted.type
    if last.type not in ev.AT_REST and own[-1].readable and not given_up:
        message = f"run {ref.run} goes on"
        raise CannotPurge("purge.open", ref.run, message, "Wait for its end, or cancel or kill it.")
    if sharing := await forks(client.log, ref, besides):
        raise _shared(ref.run, f"{', '.join(sharing)} {'share' if len(sharing) > 1 else 'shares'} its events")
    parent = msgspec.json.decode(own[0].event.payload, type=_Born).parent if own[0].event.n == 1 else None
    if parent is None or parent.run == within:
        return
    above = await client.log.last(RunRef(ref.tenant, parent.run))
    if above is not None and above.event.type not in ev.AT_REST:
        message = f"run {parent.run}, which has started it, goes on"
        raise CannotPurge("purge.parent", ref.run, message, f"Purge {parent.run} when it has ended; this goes with it.")


def _shared(run: str, message: str) -> CannotPurge:
    return CannotPurge(FORKED, run, message, "Purge its forks before.")
