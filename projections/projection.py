"""The projection port: a pure fold of events into a view, and the checkpoint that says how far it has come.

A projection takes the events of one run in the order of its log (one that takes several runs says so) and never looks
anywhere else, so that a view grown event by event and one rebuilt from the whole log are the same. Event types it does
not know it skips. It may fail or lag without harm: no run waits for it.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from msgspec import Struct

from callboard.bus.events import TYPES, Event, Payload, payload_of

V = TypeVar("V", covariant=True)


class Projection(Protocol[V]):
    """A fold of events into a view of type ``V``."""

    def apply(self, event: Event) -> None:
        """Take the next event."""
        ...

    def view(self) -> V:
        """Return what the events so far amount to; a later `apply` does not change it."""
        ...


def fold(projection: Projection[V], events: Iterable[Event]) -> V:
    """Apply the events in order and return the view."""
    for event in events:
        projection.apply(event)
    return projection.view()


def known(event: Event) -> Payload | None:
    """Read an event's payload; None for a type that this version does not know.

    :raises msgspec.ValidationError: if the payload does not fit its type
    """
    return payload_of(event) if event.type in TYPES else None


class OutOfOrder(Exception):
    """Raised by `Checkpoint.take` if events are missing before the one that came."""

    def __init__(self, run: str, expected: int, came: int) -> None:
        super().__init__(f"run {run}: expected event {expected}, event {came} came; rebuild the view from event 1")
        self.run = run
        self.expected = expected
        self.came = came


class Checkpoint(Struct):
    """How far a projection has come: the number of the last event it has taken, per run.

    A stream delivers at least once; an event that was taken already is told apart by its number. ``gapless`` is False
    for a projection that is fed a selection of event types. The follower keeps the stream's sequence beside this and
    calls `forget` for runs that ended, so that the table does not grow for ever.
    """

    last: dict[str, int] = {}
    gapless: bool = True

    def take(self, event: Event) -> bool:
        """Say whether the event is the next one; False if it was taken before.

        :raises OutOfOrder: if the checkpoint is gapless and events are missing before this one
        """
        last = self.last.get(event.run, 0)
        if event.n <= last:
            return False
        if self.gapless and event.n != last + 1:
            raise OutOfOrder(event.run, last + 1, event.n)
        self.last[event.run] = event.n
        return True

    def forget(self, run: str) -> None:
        """Drop a run of which nothing more will come."""
        self.last.pop(run, None)
