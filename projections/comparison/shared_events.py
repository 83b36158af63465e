"""The events that two runs share, if one is a fork of the other, or both are forks of the same run."""

from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct

from callboard.bus.events import Event, RunAccepted, RunStart, SourcesResolved
from callboard.lib.json_decoder import decode_json
from callboard.projections.comparison.json_differences import Difference, differences
from callboard.projections.comparison.text_marks import Marker
from callboard.projections.projection import known_payload

_TOLD_ELSEWHERE = frozenset({RunStart.type, SourcesResolved.type})
"""Event types whose payloads are not compared here, because the starts of runs are compared separately."""


class Replaced(Struct, frozen=True):
    """A shared event with different payloads, and the differences."""

    n: int
    type: str
    path: str
    payload: list[Difference]


class Shared(Struct, frozen=True):
    """The events up to number ``n`` are shared. ``replaced`` are those with different payloads."""

    n: int
    replaced: list[Replaced]


def find_shared(left: Sequence[Event], right: Sequence[Event], marker: Marker) -> Shared | None:
    """Return the events that two runs share; None if neither is a fork, or they share no events.

    The first event of each run is never shared. Other events are shared if they have the same time. Their origins
    cannot be compared, because a fork's log names only its direct origin, and an exported log may not even have that.
    """
    if not (_is_fork(left) or _is_fork(right)):
        return None
    pairs = list(takewhile(_same, zip(left[1:], right[1:], strict=False)))
    if not pairs:
        return None
    payloads = [
        Replaced(one.n, one.type, one.path, differences(decode_json(one.payload), decode_json(other.payload), marker))
        for one, other in pairs
        if bytes(one.payload) != bytes(other.payload) and one.type not in _TOLD_ELSEWHERE
    ]
    return Shared(pairs[-1][0].n, payloads)


def _is_fork(events: Sequence[Event]) -> bool:
    accepted = known_payload(events[0]) if events else None
    return isinstance(accepted, RunAccepted) and accepted.forked_from is not None


def _same(pair: tuple[Event, Event]) -> bool:
    return pair[0].time == pair[1].time and _place(pair[0]) == _place(pair[1])


def _place(event: Event) -> tuple[int, str, str, int, str]:
    return event.n, event.type, event.path, event.iteration, event.key
