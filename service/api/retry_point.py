"""Retrying: the place in a run's events from which what ended it is tried again.

A run that was cancelled or killed goes on from before that, one that has expired from before it waited for somebody in
vain, one that has failed from before what its first failed node was told.
"""

from collections.abc import Iterable, Sequence

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.projections.projection import known
from callboard.projections.run.intents import Opened, OpenIntents

ENDED_BADLY = ("failed", "expired", "cancelled")


class NowhereToFork(CallboardError):
    """A run has no such place to be gone on from."""

    def __init__(self, run: str, message: str, remedy: str) -> None:
        super().__init__("fork.nowhere", message, run, remedy)


def retried_at(run: str, events: Sequence[Event], *, anew: bool = False) -> int:
    """Return the number of the event behind which a run that ended badly is tried again.

    Effects that were open there, or whose outcome lies behind, are carried out once more; ``anew``: they are asked for
    once more, too, so that they may be asked for otherwise.

    :raises NowhereToFork: if it has not ended badly, or has failed and none of its nodes has
    """
    end = ev.payload_of(events[-1])
    if not isinstance(end, ev.RunEnd) or end.status not in ENDED_BADLY:
        told = f"it {end.status}" if isinstance(end, ev.RunEnd) else "it goes on"
        raise NowhereToFork(run, f"the run has no failure to try again: {told}", "Fork it at an event or a node.")
    failed = _failed_exit(events, end.error)
    cancelled = next((event for event in events if event.type == ev.CancelRequested.type), None)
    if cancelled is not None and (end.status == "cancelled" or failed is None or cancelled.n < failed.n):
        return _before_cancel(events, cancelled, anew=anew)
    if end.status == "expired" and (elapsed := _elapsed(events)) is not None:
        return _before_wait(events, elapsed)
    if failed is None:
        raise NowhereToFork(run, "none of the run's nodes failed", "Fork it at an event or a node.")
    return _before_failure(events, failed, anew=anew)


def continued_at(run: str, events: Sequence[Event], *, anew: bool = False) -> int:
    """Return the number of the event behind which a child run goes on whose parent is tried again.

    One that has ended well ends again at once. One that has not ended goes on from where it is. It does not go on in a
    pause: whoever has paused it, its former parent perhaps, may be gone.

    :raises NowhereToFork: if it has failed and none of its nodes has, or cannot be performed
    """
    last, end = events[-1], ev.payload_of(events[-1])
    cancelled = next((event for event in events if event.type == ev.CancelRequested.type), None)
    if isinstance(end, ev.RunEnd) and end.status in ENDED_BADLY:
        at = retried_at(run, events, anew=anew)
    elif isinstance(end, ev.RunEnd):
        at = last.n - 1
    elif isinstance(end, ev.RunQuarantined | ev.RunDiverged):
        raise NowhereToFork(run, f"no worker performs it: {end.code}", "Look at what is wrong with it.")
    elif cancelled is not None:
        at = _before_cancel(events, cancelled, anew=anew)
    else:
        at = last.n
    paused = [one.event.n for one in opened_at(events, at) if isinstance(one.payload, ev.RunPaused)]
    return min([at, *(n - 1 for n in paused)])


def stands_still(events: Sequence[Event], at: int) -> bool:
    """Whether a run was paused behind an event."""
    return any(isinstance(opened.payload, ev.RunPaused) for opened in opened_at(events, at))


def _before_cancel(events: Sequence[Event], cancelled: Event, *, anew: bool) -> int:
    calls = [one.event.n for one in opened_at(events, cancelled.n - 1) if isinstance(one.payload, ev.ModelCall)]
    return (min(calls) if anew and calls else cancelled.n) - 1


def _elapsed(events: Sequence[Event]) -> Event | None:
    """The time bound by which a run has expired."""
    return next((event for event in reversed(events) if event.type == ev.TimerFired.type), None)


def _before_wait(events: Sequence[Event], elapsed: Event) -> int:
    """Before somebody was asked, who is asked anew then; behind a pause, which retrying ends."""
    opened = list(opened_at(events, elapsed.n - 1))
    asked = [
        one.event.n
        for one in opened
        if _place(one.event) == _place(elapsed) and isinstance(one.payload, ev.HumanAsked | ev.ToolCall)
    ]
    paused = [one.event.n for one in opened if isinstance(one.payload, ev.RunPaused)]
    if asked:
        return asked[-1] - 1
    return paused[-1] if paused else _unclaimed(events, elapsed.n - 1)


def _before_failure(events: Sequence[Event], failed: Event, *, anew: bool) -> int:
    """Before the last outcome that a failed node was told. One that failed by itself is entered once more."""
    own = [event for event in events if event.n < failed.n and _place(event) == _place(failed)]
    outcomes = [event for event in own if ev.TYPES[event.type].kind == "outcome" and event.key]
    if not outcomes:
        return next(event.n for event in reversed(own) if event.type == ev.NodeEnter.type) - 1
    last = outcomes[-1]
    if last.type == ev.TimerFired.type:
        return _unclaimed(events, last.n - 1)
    return (next(event.n for event in own if event.key == last.key) if anew else last.n) - 1


def _unclaimed(events: Sequence[Event], at: int) -> int:
    """Leave away who took the run on as a time bound elapsed: of that there is left what there was before."""
    while at > 1 and events[at - 1].type == ev.RunClaimed.type:
        at -= 1
    return at


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


def opened_at(events: Sequence[Event], at: int) -> Iterable[Opened]:
    """Return the intents that were open behind an event."""
    intents = OpenIntents()
    for event in events[:at]:
        if (payload := known(event)) is not None:
            intents.apply(event, payload)
    return intents


def _place(event: Event) -> tuple[str, int]:
    return event.path, event.iteration
