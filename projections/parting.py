"""Where a fork parts from its origin, as a fold of its events: what it shares, and when it went on by itself.

The shared events keep the times that they had at the origin. So a fork has not lasted from its first event on: it
began when it went on, and of what was under way at the parting the time until then does not count.
"""

import datetime as dt

import msgspec
from msgspec import Struct

from callboard.bus.events import Event, ForkedFrom, Payload, RunAccepted


class Parting(Struct, frozen=True):
    """A fork has the events 2 to ``n`` of ``origin``, the last of them as old as ``then``; its own first one behind
    those is as old as ``gone_on``. Either is None as long as it is not there."""

    origin: str
    n: int
    then: dt.datetime | None = None
    gone_on: dt.datetime | None = None


class PartingFold:
    """Folds one run into its `Parting`; one that is no fork has none."""

    def __init__(self) -> None:
        self.parting: Parting | None = None

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
        """Whether an event is the origin's: what it tells was done there, and paid for."""
        return self.parting is not None and 1 < event.n <= self.parting.n

    def begins_anew(self, intent: Event, last: int) -> bool:
        """Whether the fork does by itself what an intent of its origin asks for, that is open behind event ``last``."""
        return self.is_shared(intent) and self.parting is not None and last >= self.parting.n

    def began(self, accepted: dt.datetime) -> dt.datetime | None:
        """When the run began by itself, whose first event tells ``accepted``; None as long as it has not.

        The first event of a fork is read with a time before those that it shares.
        """
        if self.parting is None or self.parting.n == 1:
            return accepted
        return self.parting.gone_on

    def lasted_s(self, begin: dt.datetime, end: dt.datetime) -> float:
        """How long something lasted, in seconds, without the time between the parting and the going on."""
        seconds, parting = (end - begin).total_seconds(), self.parting
        if parting is None or parting.then is None or parting.gone_on is None or parting.n == 1:
            return seconds
        crosses = begin <= parting.then and end >= parting.gone_on
        return seconds - (parting.gone_on - parting.then).total_seconds() if crosses else seconds


def _of(forked: ForkedFrom | None) -> Parting | None:
    return Parting(forked.run, forked.n) if forked is not None else None
