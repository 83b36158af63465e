"""Fork places: whether there is something to go on from where a fork says, for the fork itself and for the child runs
that it takes along."""

from callboard.bus import events as ev
from callboard.bus.commands import Fork
from callboard.bus.events import Problem
from callboard.bus.log.port import is_lost
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import gone
from callboard.bus.subjects import RunRef, is_name


async def place_problems(log: JetStreamLog, tenant: str, fork: Fork, where: str = "fork") -> list[Problem]:
    """Return what is wrong with the place of a fork, and with those of its children.

    :raises NoAnswer: if the log does not answer
    """
    ref = RunRef(tenant, fork.run)
    last = await log.last(ref) if is_name(fork.run) else None
    if last is None or await gone(log, ref) is not None:
        return [no_origin(fork.run, where)]
    if is_lost(last):
        # A fork can go on from any event before the damaged one.
        last = (await log.read(ref))[-1]
    end = last.event.n - (last.event.type == ev.RunEnd.type)
    if not 1 <= fork.at <= end:
        message = f"nothing can go on behind event {fork.at} of run {fork.run}"
        return [Problem("fork.no_event", message, f"{where}.at", expected=f"an event from 1 to {end}")]
    problems: list[Problem] = []
    there = await _children(log, ref, fork.at) if fork.children else set[str]()
    for key, child in fork.children.items():
        if key in there:
            problems += await place_problems(log, tenant, child, f"{where}.children.{key}")
            continue
        message = (
            f"no child run of the effect {key!r} is open behind event {fork.at} of run {fork.run}, or begins later"
        )
        expected = f"one of {', '.join(sorted(there))}" if there else "no children: there are none"
        problems.append(Problem("fork.no_child", message, f"{where}.children", expected=expected))
    return problems


def no_origin(run: str, where: str = "fork") -> Problem:
    """There is nothing to go on from, or it has been purged."""
    return Problem("run.unknown", f"there is no run {run!r}", f"{where}.run", expected="a run to go on from")


async def _children(log: JetStreamLog, ref: RunRef, at: int) -> set[str]:
    """The keys of the child runs that are open behind an event of a run, or begin later."""
    there = set[str]()
    for item in await log.read(ref):
        if item.event.type == ev.ChildStart.type:
            there.add(item.event.key)
        elif item.event.n <= at and item.event.type in (ev.ChildEnd.type, ev.EffectCancelled.type):
            there.discard(item.event.key)
    return there
