"""Forking: where a run is to be gone on from, found in its events, and the start message that says so.

A place is given as an event's number, as a node that is to be entered anew, as the failure that is to be tried again,
or as the run's very beginning, which is no fork but the same start once more.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.commands import Resume
from callboard.bus.events import Event, Problem
from callboard.bus.log.damage import require_first
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.forks import start_like
from callboard.runtime.admission.verdicts import Verdict
from callboard.service.api.child_forks import continued
from callboard.service.api.client import VERDICT_WAIT_S, Client
from callboard.service.api.retry_point import NowhereToFork, retried_at, stands_still

_RESUMED = "retry of {}"
"""By which name a run is resumed that was begun by a retry."""


class ForkRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``fork``; exactly one of ``at``, ``from``, ``failure`` and ``again`` says where ``run_id`` is gone on from.

    ``outcome`` are members that event ``at``, which must be an outcome, is to have otherwise; ``variables`` are set
    there; ``start`` are members of the start message that are given anew, ``run_id`` of the new run among them.
    """

    run_id: str
    at: int | None = None
    node: str | None = field(name="from", default=None)
    failure: bool = False
    again: bool = False
    outcome: dict[str, Any] | None = None
    variables: dict[str, Any] = {}
    start: dict[str, Any] = {}


async def begun(client: Client, asked: ForkRun, events: Sequence[Event], *, wait_s: float = VERDICT_WAIT_S) -> Verdict:
    """Begin the run that is asked for, by the events of the one that it is about; return its verdict.

    What was paused when it was cancelled, or until its time was over, is resumed where it is retried. Its child runs go
    on from where they were (`callboard.service.api.child_forks`).

    :raises NowhereToFork: if there is no such place, or not exactly one
    :raises NoVerdict: if no worker admitted or refused it in time
    :raises StoreFull: if there is no room for it
    :raises NoAnswer: if the log does not answer
    """
    message = message_of(asked, events)
    warnings: list[Problem] = []
    at: int = message["fork"]["at"] if asked.failure else 0
    if asked.failure:
        below = await continued(client, asked.run_id, events, at, anew="model" in asked.start)
        message["fork"] |= {"children": below.children} if below.children else {}
        warnings = below.warnings
    verdict = await client.start(message, wait_s=wait_s)
    if warnings:
        verdict = replace(verdict, warnings=[*verdict.warnings, *warnings])
    paused = asked.failure and stands_still(events, at)
    if paused and verdict.status == "accepted" and verdict.run_id is not None:
        resume = Resume(id=_RESUMED.format(verdict.run_id), by=message.get("by"))
        # Sent again under the same id, it has no effect.
        await client.tell(verdict.run_id, "resume", resume, wait_s=wait_s)
    return verdict


def message_of(asked: ForkRun, events: Sequence[Event]) -> dict[str, Any]:
    """Return the start message of what is asked for, by the events of the run that it is about.

    :raises NowhereToFork: if there is no such place, or not exactly one
    """
    given = [asked.at is not None, asked.node is not None, asked.failure, asked.again]
    if sum(given) != 1:
        message = f"{sum(given)} places are given to go on from"
        raise NowhereToFork(asked.run_id, message, "Give exactly one: at, from, failure or again.")
    if asked.again:
        accepted = ev.payload_of(require_first(RunRef("", asked.run_id), events))
        assert isinstance(accepted, ev.RunAccepted)
        return start_like(accepted, asked.start)
    if asked.at is not None:
        at = asked.at
    elif asked.node is not None:
        at = entry_of(asked.run_id, events, asked.node) - 1
    else:
        at = retried_at(asked.run_id, events, anew="model" in asked.start)
    fork: dict[str, Any] = {"run": asked.run_id, "at": at}
    otherwise: dict[str, Any] = {"outcome": asked.outcome, "variables": asked.variables or None}
    given = {name: value for name, value in otherwise.items() if value is not None}
    return {**asked.start, "fork": {**fork, **given}}


def entry_of(run: str, events: Sequence[Event], node: str) -> int:
    """Return the number of the event by which a node was entered: last, or (``NODE#2``) for that time.

    :raises NowhereToFork: if it was not
    """
    name, _, iteration = node.partition("#")
    entered: list[str] = []
    found = 0
    for event in events:
        if event.type == ev.NodeEnter.type:
            payload = ev.payload_of(event)
            assert isinstance(payload, ev.NodeEnter)
            entered.append(event.path)
            if name in (event.path, payload.node) and iteration in ("", str(event.iteration)):
                found = event.n
    if found:
        return found
    known = ", ".join(dict.fromkeys(entered)) or "none"
    raise NowhereToFork(run, f"the run has not entered {node!r}", f"Name a node that it has entered: {known}.")
