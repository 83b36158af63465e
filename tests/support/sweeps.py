"""Which deaths of a sweep are performed: all of a short run, and of a longer one the first of each kind.

The kind of a death after an event is given by the types of this event and of the next one, and by whether both are
of the same node. ``EVERY_CRASH=1`` performs the deaths after all events of all runs: ``make sweep``.
"""

import os
from collections.abc import Hashable, Sequence

from callboard.bus.events import Event

EVERY = os.environ.get("EVERY_CRASH") == "1"
"""Whether the deaths of long runs are performed without a selection."""

ALL_MAX = 16
"""How many events a run has at most whose deaths are all performed."""


def select_deaths(events: Sequence[Event]) -> list[int]:
    """Return the numbers of the events after which a worker is to die, in order, the first and the last included."""
    here = [(event.type, event.path) for event in events]
    following = [*here[1:], ("", "")]
    return select([(a, b, of == then) for (a, of), (b, then) in zip(here, following, strict=True)])


def select(kinds: Sequence[Hashable]) -> list[int]:
    """Return the places, counted from 1, of the first of each kind; all if there are few. The last one is included."""
    if EVERY or len(kinds) <= ALL_MAX:
        return list(range(1, len(kinds) + 1))
    first: dict[Hashable, int] = {}
    for place, kind in enumerate(kinds, start=1):
        first.setdefault(kind, place)
    return sorted({*first.values(), len(kinds)})
