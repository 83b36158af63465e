"""The projection port: a pure fold of events into a view, and the checkpoint that records its progress.

A projection takes the events of one run in the order of its log, unless it says that it takes several runs. It reads
nothing else, so that a view built event by event equals one that is rebuilt from the whole log. It skips event types
that it does not know. A projection that fails or lags does no harm, because runs do not wait for it.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from msgspec import Struct

from callboard.bus.events import TYPES, Event, Payload, decode_payload

V = TypeVar("V", covariant=True)


class Projection(Protocol[V]):
    """A fold of events into a view of type ``V``."""

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        ...

    def view(self) -> V:
        """Return the view of the events so far. A later `apply` does not change it."""
        ...


def fold(projection: Projection[V], events: Iterable[Event]) -> V:
    """Apply the events in order and return the view."""
    for event in events:
        projection.apply(event)
    return projection.view()


def known_payload(event: Event) -> Payload | None:
    """Read an event's payload; None for a type that this version does not know.

    :raises msgspec.ValidationError: if the payload does not fit its type
    """
    return decode_payload(event.type, event.payload) if event.type in TYPES else None


class OutOfOrder(Exception):
    """Raised by `Checkpoint.take` if events are missing before the given one."""

    def __init__(self, run: str, expected: int, came: int) -> None:
        super().__init__(f"run {run}: expected event {expected}, event {came} came; rebuild the view from event 1")
        self.run = run
        self.expected = expected
        self.came = came


class Checkpoint(Struct):
    """The progress of a projection: the number of the last event it has taken, per run.

    A stream delivers at least once, and the number identifies an event that was already taken. ``gapless`` is False
    for a projection that receives only some event types. The follower stores the stream's sequence next to this, and
    calls `forget` for runs that ended, so that the table does not grow without limit.
    """

    last: dict[str, int] = {}
    gapless: bool = True

    def take(self, event: Event) -> bool:
        """Record an event and return True; return False if it was already taken.

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
        """Remove a run that has no more events."""
        self.last.pop(run, None)
