"""Admission of successors: the start of a run that continues another one takes everything but its input from there.

The start is stored in one batch with the predecessor's ``run.end``, which names the successor and has its input.
"""

from typing import Any, TypeVar

import msgspec

from callboard.bus import events as ev
from callboard.bus.effects import ModelUsage, Tally, Usage
from callboard.bus.events import Problem
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import LogReader, whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.subjects import RunRef, is_name
from callboard.bus.tracecontext import TraceContext
from callboard.runtime.admission.chains import first_named
from callboard.runtime.admission.forks import start_like
from callboard.runtime.admission.start_message import CONTINUES, Inherited

IDLE_EVENTS_MAX = 5
"""Maximum number of events of a run that has performed nothing. A run that takes a signal has one more."""

T = TypeVar("T", ev.RunAccepted, ev.RunEnd)


async def complete_successor(
    log: LogReader, tenant: str, document: dict[str, Any]
) -> tuple[dict[str, Any], Inherited] | list[Problem]:
    """Return the complete start message of a successor, and its inheritance; or the problems of the message.

    :raises NoAnswer: if the log does not answer
    """
    run, named = document.get("run_id"), document[CONTINUES]
    if not isinstance(named, str) or not is_name(named):
        return [Problem("start.continues", "not a run id", CONTINUES, expected="the id of a run that has ended")]
    ref = RunRef(tenant, named)
    accepted = await _payload(log, (await log.read(ref, limit=1) or [None])[0], ev.RunAccepted)
    last = await log.last(ref)
    end = await _payload(log, last, ev.RunEnd)
    successor = end.successor if end is not None else None
    if accepted is None or end is None or successor is None or successor.run != run:
        message = f"run {named!r} does not continue as {run!r}"
        expected = "the id of a run whose `run.end` names this run as its successor"
        return [Problem("start.continues", message, CONTINUES, expected=expected)]
    given = {"run_id": run, "input": successor.input}
    if by := accepted.start.get("by"):
        given["by"] = by
    trace, first = accepted.trace, first_named(named, accepted)
    idle = accepted.continues.idle if accepted.continues is not None else 0
    performed = last is not None and last.event.n > IDLE_EVENTS_MAX
    inherited = Inherited(
        ev.Continues(
            named,
            successor.signals,
            *_usage_until(accepted, end),
            first=first,
            idle=0 if performed else idle + 1,
        ),
        accepted.parent,
        TraceContext(trace.traceparent, trace.tracestate) if trace is not None and trace.traceparent else None,
    )
    return start_like(accepted, given), inherited


async def parent_of(log: LogReader, tenant: str, document: dict[str, Any]) -> ev.Parent | None:
    """Return the parent that waits for a successor; None if the start message is of another run, or it has no parent.

    :raises NoAnswer: if the log does not answer
    """
    completed = await complete_successor(log, tenant, document) if CONTINUES in document else []
    return None if isinstance(completed, list) else completed[1].parent


def _usage_until(accepted: ev.RunAccepted, end: ev.RunEnd) -> tuple[Usage, list[ModelUsage]]:
    """Return the usage of a run that has ended, and of those that it continues: in total, and by model."""
    before = accepted.continues or ev.Continues("")
    models = Tally()
    for one in (*before.models, *end.models):
        models.add(one)
    return before.usage + end.usage, models.view()


async def _payload(log: LogReader, found: Recorded | None, kind: type[T]) -> T | None:
    """Return the payload of an event; None if it is of another type or cannot be read."""
    event = await whole(log, found) if found is not None and found.readable else None
    if event is None or event.type == UNREADABLE:
        return None
    try:
        payload = ev.payload_of(event)
    except msgspec.ValidationError:
        return None
    return payload if isinstance(payload, kind) else None
