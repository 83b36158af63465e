"""Damage: events that a run's log has lost, detected by a gap in their numbers.

The server drops a stored message whose checksum does not match. The guard of an append ensures that event n is stored
before event n+1, so a writer never leaves a gap.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from callboard.bus.errors import LogUnreadable
from callboard.bus.events import Event, Warned
from callboard.bus.subjects import RunRef

UNREADABLE = "log.unreadable"
"""The type of the event that represents a message that cannot be read as an event. Such an event is never appended."""

REMEDY = (
    "Import the run again from an archive, or fork it before the missing event. `callboard kill` ends it if it is open."
)

MISSING_MAX = 100
"""Maximum number of missing events that a message lists."""


class UnreadableEvent(Struct, frozen=True):
    """The payload of an `UNREADABLE` event: which message it represents, and why that cannot be read."""

    sequence: int
    subject: str
    reason: str


class MissingEvents:
    """Folds a run's events, in order, into the numbers of those that are missing before the last one."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.count = 0
        self._unreadable: list[tuple[int, str]] = []
        self._last = 0

    def apply(self, event: Event) -> None:
        if event.type == UNREADABLE and len(self._unreadable) < MISSING_MAX:
            self._unreadable.append((event.n, msgspec.json.decode(event.payload, type=UnreadableEvent).reason))
        if event.n > self._last + 1:
            self.count += event.n - self._last - 1
            room = MISSING_MAX - len(self.numbers)
            self.numbers += list(range(self._last + 1, event.n))[:room]
        self._last = max(self._last, event.n)

    def skip(self, n: int) -> None:
        """Do not expect the events up to a number: they belong to the origin of a fork."""
        self._last = max(self._last, n)

    def warnings(self) -> list[Warned]:
        """Return a warning that names the missing events, if there are any, and one for each unreadable event."""
        found = [f"{describe_missing(self.numbers)} from the log"] if self.numbers else []
        found += [f"event {n} cannot be read: {reason}" for n, reason in self._unreadable]
        return [Warned(LogUnreadable.CODE, f"{reason}. {REMEDY}") for reason in found]


def describe_missing(numbers: list[int]) -> str:
    """Return the numbers of missing events in words, such as ``events 3, 4 and 9 are missing``."""
    if len(numbers) == 1:
        return f"event {numbers[0]} is missing"
    *most, last = (str(number) for number in numbers)
    return f"events {', '.join(most)} and {last} are missing"


def require_sound(ref: RunRef, events: Iterable[Event]) -> None:
    """Check that a run's events are there from the first one on, without a gap, and can be read.

    :raises LogUnreadable: names the first event that is missing or cannot be read
    """
    missing = MissingEvents()
    for event in events:
        missing.apply(event)
        if warnings := missing.warnings():
            raise LogUnreadable(ref, 0, f"run {ref.run}", warnings[0].reason)


def require_first(ref: RunRef, events: Iterable[Event]) -> Event:
    """Return the first event of a run.

    :raises LogUnreadable: if it is missing
    """
    first = next(iter(events), None)
    if first is None or first.n != 1:
        n = first.n if first is not None else 0
        raise LogUnreadable(
            ref, 0, f"run.accepted of run {ref.run}", f"event 1 is missing; the log begins with event {n}"
        )
    return first
