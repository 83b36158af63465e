"""Forks: finds the place in a run's events from which a new run continues, and builds the start message for it.

A caller gives the place as the number of an event, as a node to enter again, or as the failure to retry. It may also
ask for the beginning of the run: that is not a fork, but the same start once more.
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
from callboard.runtime.client.client import VERDICT_WAIT_S, Client
from callboard.service.operations.child_forks import find_child_places
from callboard.service.operations.retry_point import NowhereToFork, find_retry_place, is_paused_at

_RESUMED = "retry of {}"
"""The id of the `resume` command that is sent to a run begun by a retry."""


class ForkRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``fork``: exactly one of ``at``, ``from``, ``failure`` and ``again`` says where to continue run ``run_id``.

    ``outcome`` has members that replace those of event ``at``, which must be an outcome. ``variables`` are set at that
    place. ``start`` has members that replace those of the original start message, such as ``run_id`` for the new run.
    """

    run_id: str
    at: int | None = None
    node: str | None = field(name="from", default=None)
    failure: bool = False
    again: bool = False
    outcome: dict[str, Any] | None = None
    variables: dict[str, Any] = {}
    start: dict[str, Any] = {}


async def begin_fork(
    client: Client, asked: ForkRun, events: Sequence[Event], *, wait_s: float = VERDICT_WAIT_S
) -> Verdict:
    """Start the requested fork, retry or rerun, and return its verdict; ``events`` are those of the original run.

    If the run was paused at the place where it is retried, the new run is resumed at once. Child runs continue from
    where they were (`callboard.service.operations.child_forks`).

    :raises NowhereToFork: if the place does not exist, or the request does not give exactly one
    :raises NoVerdict: if no worker admitted or refused the start in time
    :raises StoreFull: if the store has no room for the start
    :raises NoAnswer: if the log does not answer
    """
    message = message_of(asked, events)
    warnings: list[Problem] = []
    at: int = message["fork"]["at"] if asked.failure else 0
    if asked.failure:
        below = await find_child_places(client, asked.run_id, events, at, repeat_calls="model" in asked.start)
        message["fork"] |= {"children": below.children} if below.children else {}
        warnings = below.warnings
    verdict = await client.start(message, wait_s=wait_s)
    if warnings:
        verdict = replace(verdict, warnings=[*verdict.warnings, *warnings])
    paused = asked.failure and is_paused_at(events, at)
    if paused and verdict.status == "accepted" and verdict.run_id is not None:
        resume = Resume(id=_RESUMED.format(verdict.run_id), by=message.get("by"))
        # Another `resume` with the same id has no effect.
        await client.tell(verdict.run_id, "resume", resume, wait_s=wait_s)
    return verdict


def message_of(asked: ForkRun, events: Sequence[Event]) -> dict[str, Any]:
    """Return the start message of the requested fork, retry or rerun; ``events`` are those of the original run.

    :raises NowhereToFork: if the place does not exist, or the request does not give exactly one
    """
    given = [asked.at is not None, asked.node is not None, asked.failure, asked.again]
    if sum(given) != 1:
        message = f"the request gives {sum(given)} places to continue from"
        raise NowhereToFork(asked.run_id, message, "Give exactly one of at, from, failure and again.")
    if asked.again:
        accepted = ev.payload_of(require_first(RunRef("", asked.run_id), events))
        assert isinstance(accepted, ev.RunAccepted)
        return start_like(accepted, asked.start)
    if asked.at is not None:
        at = asked.at
    elif asked.node is not None:
        at = entry_of(asked.run_id, events, asked.node) - 1
    else:
        at = find_retry_place(asked.run_id, events, repeat_calls="model" in asked.start)
    fork: dict[str, Any] = {"run": asked.run_id, "at": at}
    otherwise: dict[str, Any] = {"outcome": asked.outcome, "variables": asked.variables or None}
    given = {name: value for name, value in otherwise.items() if value is not None}
    return {**asked.start, "fork": {**fork, **given}}


def entry_of(run: str, events: Sequence[Event], node: str) -> int:
    """Return the number of the event by which the run last entered a node; for ``NODE#2``, entered its iteration 2.

    :raises NowhereToFork: if the run has not entered the node
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
    raise NowhereToFork(run, f"the run has not entered node {node!r}", f"Name a node that it has entered: {known}.")
