"""Usage: what a run's model turns, other effects and child runs have cost, as a fold of their outcomes."""

import msgspec

from callboard.bus.effects import Usage
from callboard.bus.events import ChildEnd, EffectResult, Event, ModelResult

COSTING = frozenset({ModelResult.type, EffectResult.type, ChildEnd.type})
"""Outcomes that say what something has cost."""


class _Cost(msgspec.Struct):
    """The members of such an outcome that are decoded; its large values need not be there."""

    usage: Usage = Usage()


class UsageFold:
    """Adds up each outcome once: when it is numbered, whether or not it is ever delivered."""

    def __init__(self) -> None:
        self.total = Usage()
        self._counted: set[str] = set()

    def count(self, event: Event) -> None:
        if event.type in COSTING and event.key not in self._counted:
            self._counted.add(event.key)
            self.total += msgspec.json.decode(event.payload, type=_Cost).usage
