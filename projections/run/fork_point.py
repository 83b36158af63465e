"""The parting of a fork from its origin, as a fold of the fork's events: shared events, and the time it resumed.

Shared events keep the times that they had in the origin. The duration of a fork therefore starts with its first own
event. For nodes and effects that were in progress at the parting, the time between the last shared event and the first
own event does not count.
"""

import datetime as dt

import msgspec
from msgspec import Struct

from callboard.bus.events import Event, ForkedFrom, Payload, RunAccepted


class ForkPoint(Struct, frozen=True):
    """The parting of a fork, which shares the events 2 to ``n`` with ``origin``.

    ``then`` is the time of the last shared event, and ``gone_on`` the time of the fork's first own event after it. Each
    is None until that event was folded.
    """

    origin: str
    n: int
    then: dt.datetime | None = None
    gone_on: dt.datetime | None = None


class ForkPointFold:
    """Folds one run into its `ForkPoint`, None if the run is not a fork."""

    def __init__(self) -> None:
        self.parting: ForkPoint | None = None

    def apply(self, event: Event, payload: Payload | None) -> None:
        if isinstance(payload, RunAccepted):
            self.parting = _of(payload.forked_from)
        if self.parting is None or self.parting.gone_on is not None:
            return
        if event.n == self.parting.n:
            self.parting = msgspec.structs.replace(self.parting, then=event.time)
        elif event.n > self.parting.n:
            self.parting = msgspec.structs.replace(self.parting, gone_on=event.time)

    def is_shared(self, event: Event) -> bool:
        """Return whether an event is shared with the origin, which executed it and paid for it."""
        return self.parting is not None and 1 < event.n <= self.parting.n

    def begins_anew(self, intent: Event, last: int) -> bool:
        """Return whether the fork executes a shared intent itself, because it was open after event ``last``."""
        return self.is_shared(intent) and self.parting is not None and last >= self.parting.n

    def began(self, accepted: dt.datetime) -> dt.datetime | None:
        """Return when the run began: ``accepted``, or the time of the first own event of a fork; None before that.

        A fork's first event has a time before the events that it shares, so its time is not used.
        """
        if self.parting is None or self.parting.n == 1:
            return accepted
        return self.parting.gone_on

    def lasted_s(self, begin: dt.datetime, end: dt.datetime) -> float:
        """Return a duration in seconds, without the time between the last shared and the first own event."""
        seconds, parting = (end - begin).total_seconds(), self.parting
        if parting is None or parting.then is None or parting.gone_on is None or parting.n == 1:
            return seconds
        crosses = begin <= parting.then and end >= parting.gone_on
        return seconds - (parting.gone_on - parting.then).total_seconds() if crosses else seconds


def _of(forked: ForkedFrom | None) -> ForkPoint | None:
    return ForkPoint(forked.run, forked.n) if forked is not None else None
