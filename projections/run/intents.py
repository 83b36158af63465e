"""The open intents of a run: announced effects without an outcome. Outcomes match intents by type and key."""

from collections.abc import Iterator

from msgspec import Struct

from callboard.bus.events import OUTCOME_OF, EffectCancelled, Event, Payload

_INTENT_OF: dict[type[Payload], str] = {outcome: intent.type for intent, outcome in OUTCOME_OF.items()}


class Opened(Struct, frozen=True):
    """An intent with the event that announced it."""

    event: Event
    payload: Payload


def address_closed(event: Event, payload: Payload) -> tuple[str, str] | None:
    """Return type and key of the intent that an outcome closes; None if the payload is not an outcome.

    A ``timer.fired`` without ``timer.set`` and a signal without key have an address too, but no intent is open there.
    """
    if isinstance(payload, EffectCancelled):
        return payload.of, event.key
    intent = _INTENT_OF.get(type(payload))
    return (intent, event.key) if intent else None


class OpenIntents:
    """A table of the open intents, in the order in which they were announced."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Opened] = {}

    def apply(self, event: Event, payload: Payload) -> Opened | None:
        """Apply an event. Return the intent that it closes, if it closes one."""
        if payload.kind == "intent":
            self._open[payload.type, event.key] = Opened(event, payload)
            return None
        address = address_closed(event, payload)
        return self._open.pop(address, None) if address else None

    def clear(self) -> None:
        """Remove all intents, because none is open after the end of a run."""
        self._open.clear()

    def __iter__(self) -> Iterator[Opened]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)
