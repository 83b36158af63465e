"""Usage: what a run's model turns, other effects and child runs have used of which model; a fold of their outcomes."""

import msgspec

from callboard.bus.effects import ModelUsage, Tally, Usage, parts, used_by
from callboard.bus.events import ChildEnd, EffectResult, Event, ModelResult

COSTING = frozenset({ModelResult.type, EffectResult.type, ChildEnd.type})
"""Outcomes that say what something has used."""


class _Outcome(msgspec.Struct):
    """The members of such an outcome that are decoded; its large values need not be there."""

    usage: Usage = Usage()
    model: str = ""
    models: list[ModelUsage] = []
    requests: list[Usage] = []
    unmetered: bool = False


class UsageFold:
    """Adds up each outcome once: when it is numbered, whether or not it is ever delivered.

    ``models`` has what was used behind event ``shared``: what a fork has of its origin, that has paid for.
    """

    def __init__(self, shared: int = 0) -> None:
        self.shared = shared
        self.total = Usage()
        self.models = Tally()
        self._counted: set[str] = set()

    def count(self, event: Event) -> list[ModelUsage]:
        """Count an event; return what it says was used, if it is such an outcome that was not counted before."""
        if event.type not in COSTING or event.key in self._counted:
            return []
        self._counted.add(event.key)
        outcome = msgspec.json.decode(event.payload, type=_Outcome)
        ended = event.type == ChildEnd.type
        found = parts(outcome.usage, outcome.models) if ended else used_by(outcome.model, outcome)
        if not any(one.counts for one in found):
            return []
        self.total += outcome.usage
        for one in found if event.n > self.shared else []:
            self.models.add(one)
        return found
