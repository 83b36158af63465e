"""Forking: where a run is to be gone on from, found in its events, and the start message that says so.

A place is given as an event's number, as a node that is to be entered anew, as the failure that is to be tried again,
or as the run's very beginning, which is no fork but the same start once more.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.runtime.admission.forks import started_alike

ENDED_BADLY = ("failed", "expired", "cancelled")


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


class NowhereToFork(CallboardError):
    """A run has no such place to be gone on from."""

    def __init__(self, run: str, message: str, remedy: str) -> None:
        super().__init__("fork.nowhere", message, run, remedy)


def message_of(asked: ForkRun, events: Sequence[Event]) -> dict[str, Any]:
    """Return the start message of what is asked for, by the events of the run that it is about.

    :raises NowhereToFork: if there is no such place, or not exactly one
    """
    given = [asked.at is not None, asked.node is not None, asked.failure, asked.again]
    if sum(given) != 1:
        message = f"{sum(given)} places are given to go on from"
        raise NowhereToFork(asked.run_id, message, "Give exactly one: at, from, failure or again.")
    if asked.again:
        accepted = ev.payload_of(events[0])
        assert isinstance(accepted, ev.RunAccepted)
        return started_alike(accepted, asked.start)
    if asked.at is not None:
        at = asked.at
    elif asked.node is not None:
        at = entry_of(asked.run_id, events, asked.node) - 1
    else:
        at = failure_of(asked.run_id, events, anew="model" in asked.start) - 1
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


def failure_of(run: str, events: Sequence[Event], *, anew: bool = False) -> int:
    """Return the number of the event that made a run fail: the last outcome that its first failed node was told.

    What is behind it is undone, and the effect is carried out once more; ``anew``: it is asked for once more, too, so
    that it may be asked for otherwise. A node that failed by itself is entered once more.

    :raises NowhereToFork: if it has not failed, or none of its nodes has
    """
    end = ev.payload_of(events[-1])
    if not isinstance(end, ev.RunEnd) or end.status not in ENDED_BADLY:
        told = f"it {end.status}" if isinstance(end, ev.RunEnd) else "it goes on"
        raise NowhereToFork(run, f"the run has no failure to try again: {told}", "Fork it at an event or a node.")
    failed = _failed_exit(events, end.error)
    if failed is None:
        raise NowhereToFork(run, "none of the run's nodes failed", "Fork it at an event or a node.")
    own = [event for event in events if event.n < failed.n and _place(event) == _place(failed)]
    outcomes = [event for event in own if ev.TYPES[event.type].kind == "outcome" and event.key]
    if not outcomes:
        return next(event.n for event in reversed(own) if event.type == ev.NodeEnter.type)
    last = outcomes[-1]
    return next(event.n for event in own if event.key == last.key) if anew else last.n


def _failed_exit(events: Sequence[Event], error: Failure | None) -> Event | None:
    """The exit of the node that a run's failure comes from: the first that has the same error, else the last failed."""
    last: Event | None = None
    for event in events:
        payload = ev.payload_of(event) if event.type == ev.NodeExit.type else None
        if isinstance(payload, ev.NodeExit) and payload.outcome == "failed":
            if error is not None and payload.error is not None and payload.error.code == error.code:
                return event
            last = event
    return last


def _place(event: Event) -> tuple[str, int]:
    return event.path, event.iteration
