"""Keyframes: copies of a fold at intervals, so that its state after any event is found without folding from the first.

A copy shares all values that never change. The fold must consist of plain objects, containers and structs, as
projections do.
"""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from callboard.bus.events import Event
from callboard.projections.projection import Projection

EVERY_EVENTS = 1_024
"""The initial number of events between keyframes."""

PROJECTIONS = "callboard.projections."
"""The package whose objects are folds, or parts of folds, and are copied."""

KEPT_MAX = 32
"""The maximum number of keyframes. Above it, every second one is dropped, which doubles the interval."""

F = TypeVar("F", bound=Projection[Any])


class Keyframes(Generic[F]):
    """The keyframes of one run's fold. ``make`` creates an empty fold."""

    def __init__(self, make: Callable[[], F]) -> None:
        self._make = make
        self._frames: dict[int, F] = {}
        self._every = EVERY_EVENTS

    def at(self, events: Sequence[Event], n: int) -> F:
        """Return the fold of the first ``n`` of a run's events. The caller may change it."""
        near = max((frame for frame in self._frames if frame <= n), default=0)
        fold = copy_fold(self._frames[near]) if near else self._make()
        for place in range(near, n):
            fold.apply(events[place])
            if (place + 1) % self._every == 0 and place + 1 not in self._frames:
                self._keep(place + 1, fold)
        return fold

    def _keep(self, n: int, fold: F) -> None:
        if len(self._frames) >= KEPT_MAX:
            self._every *= 2
            self._frames = {frame: kept for frame, kept in self._frames.items() if frame % self._every == 0}
        if n % self._every == 0:
            self._frames[n] = copy_fold(fold)


V = TypeVar("V")


def copy_fold(value: V) -> V:
    """Return an independent copy of a fold."""
    found: Any = value
    match value:
        case dict():
            found = copy.copy(value)
            for key, member in value.items():
                found[key] = copy_fold(member)
        case list():
            found = [copy_fold(member) for member in value]
        case set():
            found = set(value)
        case deque():
            found = deque((copy_fold(member) for member in value), value.maxlen)
        case Struct() if not value.__struct_config__.frozen:
            found = copy.copy(value)
        case _ if type(value).__module__.startswith(PROJECTIONS) and hasattr(value, "__dict__"):
            found = copy.copy(value)
            for name, member in vars(value).items():
                setattr(found, name, copy_fold(member))
        case _:
            pass
    return found
