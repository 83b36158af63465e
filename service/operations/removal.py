"""Removes runs, or makes their content unreadable.

A purge removes the messages of a run from the log, together with its child runs. A run cannot be purged while it is
still needed: if it has not ended, its parent has not ended, forks share its events, a dataset refers to it, or the run
that continues it is not admitted yet. If an encryption key is destroyed, the content of the runs that use it can no
longer be read in any copy.
"""

from collections.abc import Collection, Sequence
from contextlib import aclosing

import msgspec

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import AppendRefused
from callboard.bus.log.recorded import Recorded, as_recorded
from callboard.bus.log.successors import successor_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import (
    PurgeMark,
    find_next_run,
    finish,
    forks,
    holders,
    last_fork,
    mark_again,
    mark_gone,
    purge_mark,
)
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.command_routing import ADMISSION
from callboard.runtime.admission.start_message import CONTINUES
from callboard.runtime.admission.tells import waiting_starts
from callboard.runtime.client.client import Client, UnknownRun

FORKED = "purge.forked"
"""Code of the error for a run whose events forks share."""


class CannotPurge(CallboardError):
    """The run is still needed."""

    def __init__(self, code: str, run: str, message: str, remedy: str) -> None:
        super().__init__(code, message, run, remedy)


class _Planned(msgspec.Struct, frozen=True):
    """A run to purge. ``mark`` is set on the run first; it is None if only remaining messages are to be removed.
    ``forked`` is the last note of a fork; it is None if the run already has a mark."""

    ref: RunRef
    mark: PurgeMark | None = None
    forked: int | None = None


class _Born(msgspec.Struct):
    """The member of ``run.accepted`` that is decoded here."""

    parent: ev.Parent | None = None


async def check_purge(client: Client, run: str, besides: Collection[str] = ()) -> None:
    """Check that a run may be purged with its children, once the forks ``besides`` have been purged.

    :raises UnknownRun: if the run does not exist, or has been purged
    :raises CannotPurge: if the run or a child is still needed
    :raises NoAnswer: if the log does not answer
    """
    if await client.log.last(client.ref(run)) is None:
        raise UnknownRun(client.ref(run))
    await _plan_purge(client, run, PurgeMark(), "", besides)


async def purge_run(client: Client, run: str, mark: PurgeMark) -> int:
    """Purge a run and its children. Return the number of removed messages, 0 if the run was already purged.

    :raises UnknownRun: if the run has never existed
    :raises CannotPurge: if the run or a child is still needed. Then nothing is removed, unless it was forked just now
    :raises NoAnswer: if the log does not answer
    """
    going = await _plan_purge(client, run, mark, "")
    # All are marked before the first is removed, so that an interrupted purge can be finished from the marks alone. The
    # run is removed before its children: after an interruption, the remaining runs have no parent, but all children.
    for one in going:
        await _mark(client, one)
    return sum([await finish(client.log, one.ref) for one in going])


async def _plan_purge(
    client: Client, run: str, mark: PurgeMark, within: str, besides: Collection[str] = ()
) -> list[_Planned]:
    """Return a run and its descendants, to purge them. ``within`` is the parent with which the run is purged; see
    `check_purge` for ``besides``.

    :raises UnknownRun: if the run has never existed
    :raises CannotPurge: if one of them is still needed
    """
    ref = client.ref(run)
    # When an interrupted purge is repeated, the mark of the first one is kept.
    before = await purge_mark(client.log, ref)
    mark = before or mark
    recorded = await client.log.read(ref)
    if not recorded:
        if before is None:
            raise UnknownRun(ref)
        return [_Planned(ref)]
    # Read before the forks are listed: setting the mark fails if another fork was noted after this.
    forked = await last_fork(client.log, ref)
    own = [item for item in recorded if item.ref == ref]
    await _check(client, ref, own, within, besides)
    found = [_Planned(ref, mark, forked if before is None else None)]
    # A fork has its own child runs in place of its origin's open ones, so the ids are not read from the events.
    for child in sorted({child_id(run, item.event.key) for item in recorded if item.event.type == ev.ChildStart.type}):
        there = client.ref(child) if await client.log.last(client.ref(child)) is not None else None
        # A child that was purged alone may be continued by a run that was not.
        if (first := there or await find_next_run(client.log, client.ref(child))) is not None:
            found += await _plan_purge(client, first.run, mark, run, besides)
    if within and (following := await find_next_run(client.log, ref)) is not None:
        # A parent has the runs that continue its child, too.
        found += await _plan_purge(client, following.run, mark, within, besides)
    return found


async def _mark(client: Client, one: _Planned) -> None:
    """:raises CannotPurge: if the run has been forked since its forks were listed"""
    if one.mark is None:
        return
    if one.forked is None:
        await mark_again(client.log, one.ref, one.mark)
        return
    try:
        await mark_gone(client.log, one.ref, one.mark, one.forked)
    except AppendRefused:
        raise _forked_error(one.ref.run, "a new fork shares its events") from None


async def _check(client: Client, ref: RunRef, own: list[Recorded], within: str, besides: Collection[str]) -> None:
    """:raises CannotPurge: if the run is still needed"""
    last = own[-1].event
    # No worker performs a child that its parent gave up while it was being admitted.
    given_up = bool(within) and last.type == ev.RunAccepted.type
    if last.type not in ev.AT_REST and own[-1].readable and not given_up:
        message = f"run {ref.run} has not ended"
        raise CannotPurge("purge.open", ref.run, message, "Wait until it has ended, or cancel or kill it.")
    successor = successor_of(last)
    if successor is not None and await _may_be_admitted(client, client.ref(successor)):
        message = f"run {successor}, which continues it, is not admitted yet, and is made from its log"
        raise CannotPurge("purge.continued", ref.run, message, "Start a worker that has its code, and wait for it.")
    if datasets := await holders(client.log, ref):
        message = f"the dataset {', '.join(datasets)} refers to it"
        raise CannotPurge(
            "purge.dataset", ref.run, message, "Remove the dataset first: `callboard dataset remove NAME`."
        )
    if sharing := await forks(client.log, ref, besides):
        raise _forked_error(ref.run, f"{', '.join(sharing)} {'share' if len(sharing) > 1 else 'shares'} its events")
    born = as_recorded(own[0])
    parent = msgspec.json.decode(born.payload, type=_Born).parent if born.n == 1 else None
    if parent is None or parent.run == within:
        return
    above = await client.log.last(RunRef(ref.tenant, parent.run))
    if above is not None and above.event.type not in ev.AT_REST:
        message = f"its parent run {parent.run} has not ended"
        remedy = f"Purge {parent.run} when it has ended; that purges its child runs, too."
        raise CannotPurge("purge.parent", ref.run, message, remedy)


async def _may_be_admitted(client: Client, successor: RunRef) -> bool:
    """Whether the start of a run that continues another one is still in admission."""
    if await client.log.last(successor) is not None:
        return False
    until = await client.log.last_sequence() + 1
    async with aclosing(waiting_starts(client.log, client.tenant, ADMISSION, until)) as starts:
        return any([start.get("run_id") == successor.run async for start in starts if CONTINUES in start])


def _forked_error(run: str, message: str) -> CannotPurge:
    return CannotPurge(FORKED, run, message, "Purge its forks first.")


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


async def destroy_key(log: JetStreamLog, tenant: str, name: str, going_on: Sequence[str]) -> None:
    """Destroy a key of a tenant; ``going_on`` are the runs with this key that have not ended.

    :raises KeyInUse: if there are such runs
    :raises KeyUnknown: if the key does not exist
    :raises NoAnswer: if the log does not answer
    """
    if going_on:
        raise KeyInUse(name, going_on)
    if not await log.keys.destroy(tenant, name):
        raise KeyUnknown(name)
