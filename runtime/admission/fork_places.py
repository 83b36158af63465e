"""Fork places: check that a fork, and each child run that it takes along, can continue from the event that it names."""

from callboard.bus import events as ev
from callboard.bus.commands import Fork
from callboard.bus.events import Problem
from callboard.bus.log.recorded import is_lost
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import purge_mark
from callboard.bus.subjects import RunRef, is_name


async def place_problems(log: JetStreamLog, tenant: str, fork: Fork, where: str = "fork") -> list[Problem]:
    """Return the problems of the place where a fork starts, and of the places of its children.

    :raises NoAnswer: if the log does not answer
    """
    ref = RunRef(tenant, fork.run)
    last = await log.last(ref) if is_name(fork.run) else None
    if last is None or await purge_mark(log, ref) is not None:
        return [unknown_origin_problem(fork.run, where)]
    if is_lost(last):
        # A fork can continue from any event before the damaged one.
        last = (await log.read(ref))[-1]
    end = last.event.n - (last.event.type == ev.RunEnd.type)
    if not 1 <= fork.at <= end:
        message = f"run {fork.run} cannot be continued after event {fork.at}"
        return [Problem("fork.no_event", message, f"{where}.at", expected=f"an event from 1 to {end}")]
    problems: list[Problem] = []
    there = await _child_keys(log, ref, fork.at) if fork.children else set[str]()
    for key, child in fork.children.items():
        if key in there:
            problems += await place_problems(log, tenant, child, f"{where}.children.{key}")
            continue
        message = f"no child run of the effect {key!r} is open after event {fork.at} of run {fork.run} or starts later"
        expected = f"one of {', '.join(sorted(there))}" if there else "no children, because the run has none there"
        problems.append(Problem("fork.no_child", message, f"{where}.children", expected=expected))
    return problems


def unknown_origin_problem(run: str, where: str = "fork") -> Problem:
    """The problem of a fork whose origin does not exist or has been purged."""
    return Problem("run.unknown", f"there is no run {run!r}", f"{where}.run", expected="an existing run to continue")


async def _child_keys(log: JetStreamLog, ref: RunRef, at: int) -> set[str]:
    """The keys of the child runs that are open after an event of a run, or start later."""
    there = set[str]()
    for item in await log.read(ref):
        if item.event.type == ev.ChildStart.type:
            there.add(item.event.key)
        elif item.event.n <= at and item.event.type in (ev.ChildEnd.type, ev.EffectCancelled.type):
            there.discard(item.event.key)
    return there
