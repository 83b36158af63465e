"""The failed tries of effects, counted from the run's log, so that a worker that takes a run over counts on."""

from collections.abc import Iterable

from callboard.bus import events as ev
from callboard.bus.events import Event, payload_of

_MEMBER = b'"tries"'


def count_failed_tries(events: Iterable[Event], after: int = 0) -> dict[str, int]:
    """Return how many tries of each effect have failed, by effect key, as far as they are recorded as progress.

    ``after`` is the last event that a fork shares with its origin: it begins the open effects anew.
    """
    found: dict[str, int] = {}
    for event in events:
        if event.type != ev.NodeProgress.type or event.n <= after or _MEMBER not in bytes(event.payload):
            continue
        match payload_of(event):
            case ev.NodeProgress(data={"tries": int(tries)}) if event.key:
                found[event.key] = max(tries, found.get(event.key, 0))
            case _:
                continue
    return found
