"""Usage: what a run's model turns, other effects and child runs have used, per model; a fold of their outcomes."""

import msgspec

from callboard.bus.effects import ModelUsage, Tally, Usage, parts, used_by
from callboard.bus.events import ChildEnd, EffectResult, Event, ModelResult

COSTING = frozenset({ModelResult.type, EffectResult.type, ChildEnd.type})
"""Outcomes that report usage."""


class _Outcome(msgspec.Struct):
    """The members of such an outcome that are decoded. Large values are skipped."""

    usage: Usage = Usage()
    model: str = ""
    models: list[ModelUsage] = []
    requests: list[Usage] = []
    unmetered: bool = False


_decode = msgspec.json.Decoder(_Outcome).decode


class UsageFold:
    """Counts each outcome once: when it is numbered, whether or not it is ever delivered.

    ``models`` has the usage after event ``shared``: the origin of a fork has paid for the events up to it.
    """

    def __init__(self, shared: int = 0) -> None:
        self.shared = shared
        self.total = Usage()
        self.models = Tally()
        self._counted: set[str] = set()

    def count(self, event: Event) -> list[ModelUsage]:
        """Count an event; return its usage if it is an outcome that reports usage and was not counted before."""
        if event.type not in COSTING or event.key in self._counted:
            return []
        self._counted.add(event.key)
        outcome = _decode(event.payload)
        ended = event.type == ChildEnd.type
        found = parts(outcome.usage, outcome.models) if ended else used_by(outcome.model, outcome)
        if not any(one.counts for one in found):
            return []
        self.total += outcome.usage
        for one in found if event.n > self.shared else []:
            self.models.add(one)
        return found
