"""Finds the place in a run's events from which a retry continues.

It depends on how the run ended. A run that was cancelled or killed continues from before the cancellation. One that
expired continues from before the question or tool call that was not answered in time. One that failed continues from
before the last outcome that its first failed node received.
"""

from collections.abc import Iterable, Sequence

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import Opened, OpenIntents

ENDED_BADLY = ("failed", "expired", "cancelled")


class NowhereToFork(CallboardError):
    """The run has no such place from which it could continue."""

    def __init__(self, run: str, message: str, remedy: str) -> None:
        super().__init__("fork.nowhere", message, run, remedy)


def find_retry_place(run: str, events: Sequence[Event], *, repeat_calls: bool = False) -> int:
    """Return the number of the event after which a run that ended badly is retried.

    Effects that are open at that event are carried out again. With ``repeat_calls`` the place is before their intents,
    so that the new run can request them differently, for example from another model.

    :raises NowhereToFork: if the run has not ended badly, or has failed without a failed node
    """
    end = ev.payload_of(events[-1])
    if not isinstance(end, ev.RunEnd) or end.status not in ENDED_BADLY:
        state = f"it {end.status}" if isinstance(end, ev.RunEnd) else "it has not ended"
        raise NowhereToFork(run, f"the run has no failure to retry: {state}", "Fork it at an event or a node.")
    failed = _find_failed_exit(events, end.error)
    cancelled = next((event for event in events if event.type == ev.CancelRequested.type), None)
    if cancelled is not None and (end.status == "cancelled" or failed is None or cancelled.n < failed.n):
        return _before_cancel(events, cancelled, repeat_calls=repeat_calls)
    if end.status == "expired" and (elapsed := _find_expiry_timer(events)) is not None:
        return _before_wait(events, elapsed)
    if failed is None:
        raise NowhereToFork(run, "none of the run's nodes failed", "Fork it at an event or a node.")
    return _before_failure(events, failed, repeat_calls=repeat_calls)


def find_continue_place(run: str, events: Sequence[Event], *, repeat_calls: bool = False) -> int:
    """Return the number of the event after which a child run continues when its parent is retried.

    A child that has ended well ends again at once. One that has not ended continues from its last event. A paused child
    continues from before the pause, because the parent that paused it may no longer be there to resume it.

    :raises NowhereToFork: if the child has failed without a failed node, or no worker can perform it
    """
    last, end = events[-1], ev.payload_of(events[-1])
    cancelled = next((event for event in events if event.type == ev.CancelRequested.type), None)
    if isinstance(end, ev.RunEnd) and end.status in ENDED_BADLY:
        at = find_retry_place(run, events, repeat_calls=repeat_calls)
    elif isinstance(end, ev.RunEnd):
        at = last.n - 1
    elif isinstance(end, ev.RunQuarantined | ev.RunDiverged):
        remedy = "Look up the code in docs/reference/errors.md."
        raise NowhereToFork(run, f"no worker can perform the run: {end.code}", remedy)
    elif cancelled is not None:
        at = _before_cancel(events, cancelled, repeat_calls=repeat_calls)
    else:
        at = last.n
    paused = [one.event.n for one in open_intents_at(events, at) if isinstance(one.payload, ev.RunPaused)]
    return min([at, *(n - 1 for n in paused)])


def is_paused_at(events: Sequence[Event], at: int) -> bool:
    """Whether a run was paused after event ``at``."""
    return any(isinstance(opened.payload, ev.RunPaused) for opened in open_intents_at(events, at))


def _before_cancel(events: Sequence[Event], cancelled: Event, *, repeat_calls: bool) -> int:
    calls = [one.event.n for one in open_intents_at(events, cancelled.n - 1) if isinstance(one.payload, ev.ModelCall)]
    return (min(calls) if repeat_calls and calls else cancelled.n) - 1


def _find_expiry_timer(events: Sequence[Event]) -> Event | None:
    """Return the last timer that fired: the one by which the run expired."""
    return next((event for event in reversed(events) if event.type == ev.TimerFired.type), None)


def _before_wait(events: Sequence[Event], elapsed: Event) -> int:
    """Return the place before the question or tool call that timed out, so that the retry asks again. Otherwise
    return the place after the pause in which the run expired: the retry ends the pause."""
    opened = list(open_intents_at(events, elapsed.n - 1))
    asked = [
        one.event.n
        for one in opened
        if _place(one.event) == _place(elapsed) and isinstance(one.payload, ev.HumanAsked | ev.ToolCall)
    ]
    paused = [one.event.n for one in opened if isinstance(one.payload, ev.RunPaused)]
    if asked:
        return asked[-1] - 1
    return paused[-1] if paused else _skip_claims(events, elapsed.n - 1)


def _before_failure(events: Sequence[Event], failed: Event, *, repeat_calls: bool) -> int:
    """Return the place before the last outcome that a failed node received. A node that failed without any outcome is
    entered again."""
    own = [event for event in events if event.n < failed.n and _place(event) == _place(failed)]
    outcomes = [event for event in own if ev.TYPES[event.type].kind == "outcome" and event.key]
    if not outcomes:
        return next(event.n for event in reversed(own) if event.type == ev.NodeEnter.type) - 1
    last = outcomes[-1]
    if last.type == ev.TimerFired.type:
        return _skip_claims(events, last.n - 1)
    return (next(event.n for event in own if event.key == last.key) if repeat_calls else last.n) - 1


def _skip_claims(events: Sequence[Event], at: int) -> int:
    """Move a place back over the claims before it: a worker claimed the run only because its timer fired."""
    while at > 1 and events[at - 1].type == ev.RunClaimed.type:
        at -= 1
    return at


def _find_failed_exit(events: Sequence[Event], error: Failure | None) -> Event | None:
    """Return the exit of the node that caused a run's failure: the first with the same error, else the last failed."""
    last: Event | None = None
    for event in events:
        payload = ev.payload_of(event) if event.type == ev.NodeExit.type else None
        if isinstance(payload, ev.NodeExit) and payload.outcome == "failed":
            if error is not None and payload.error is not None and payload.error.code == error.code:
                return event
            last = event
    return last


def open_intents_at(events: Sequence[Event], at: int) -> Iterable[Opened]:
    """Return the intents that were open after event ``at``."""
    intents = OpenIntents()
    for event in events[:at]:
        if (payload := known_payload(event)) is not None:
            intents.apply(event, payload)
    return intents


def _place(event: Event) -> tuple[str, int]:
    return event.path, event.iteration
