"""The budget of a run: counts its usage from its log, and pauses or cancels the run when a limit is reached.

The interpreter is not involved: pauses and cancellations are recorded in the log like commands from outside. Each time
a run that its budget has paused is resumed, its limits increase by their original amounts.

Emits: run.paused, cancel.requested
"""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Limits
from callboard.bus.effects import ModelUsage, Tally, Usage
from callboard.bus.events import Event
from callboard.bus.prices import PICO, Bill, Cost, Prices, dollars
from callboard.runtime.interpreter.usage import COSTING, UsageFold

REASON = "budget"

ANCESTOR = "run "
"""Prefix of the id of the run that holds another run."""

HELD_MAX = 900
"""Maximum number of children that are released with a run, because their messages go into one batch with its event."""


_COUNTED = frozenset(
    {
        ev.RunClaimed.type,
        ev.ModelCall.type,
        *COSTING,
        ev.RunPaused.type,
        ev.RunResumed.type,
        ev.ChildUsage.type,
        ev.CancelRequested.type,
        ev.EffectCancelled.type,
    }
)
"""The events that change more than the number of events."""


class RunBudget:
    """Counts the usage of one run against the ``limits`` of its start.

    ``prices`` determine its cost. ``shared`` is the number of the last event that a fork shares with its origin; usage
    up to it counts for the origin only.
    """

    def __init__(self, limits: Mapping[str, Any], prices: Prices, shared: int = 0) -> None:
        self._limits = msgspec.convert(dict(limits), Limits)
        self._is_limited = bool(limits.keys() - {"then"})
        self._prices = prices
        self._bill = Bill()
        self._unpriced: list[ModelUsage] = []
        self._shared = shared
        self._usage = UsageFold()
        self._tokens = 0
        self._turns = 0
        self._events = 0
        self._times = 1
        self._began: dt.datetime | None = None
        self._said: dict[str, Tally] = {}
        """Usage that running children have reported, by the key of their effect."""
        self._held: dict[str, None] = {}
        self._turns_held: set[str] = set()
        """Model turns that were announced when the budget was used up, by effect key."""
        self._is_paused = False
        self._is_cancelled = False
        self.paused_by: set[str] = set()
        """The runs and shared budgets that have paused this run; the empty name is the run's own budget."""
        self.held = False
        """Whether the run is paused because an ancestor's budget is used up."""
        self.releasing: dict[int, list[str]] = {}
        """Children to release with the run, by the number of the event that resumed it."""

    @property
    def is_unmetered(self) -> bool:
        """Whether a provider has not reported the usage of an answer to this run."""
        return any(one.unmetered for one in self._usage.models.view())

    @property
    def unmetered_limits(self) -> str:
        """The run's limits that do not count such an answer, as text; empty if it has none of them."""
        names = [name for name in ("tokens", "usd") if getattr(self._limits, name) is not None]
        return " and ".join(f"limits.{name}" for name in names)

    @property
    def counts_children(self) -> bool:
        """Whether the usage of running children must be reported."""
        return any(one is not None for one in (self._limits.tokens, self._limits.usd, self._limits.turns))

    @property
    def holds_back(self) -> bool:
        """Whether children are still held although the run was resumed: there were too many for one batch."""
        return bool(self._held) and not self._is_paused

    def holds(self, key: str) -> bool:
        """Whether a child must pause with the run: it reported usage when the budget was used up."""
        return key in self._held

    def holds_turn(self, key: str) -> bool:
        """Whether a model turn must wait until the run is resumed: it was announced when the budget was used up.

        This follows from the log, so it is the same at every worker.
        """
        return key in self._turns_held

    def take(self, event: Event) -> None:
        """Count the next event of the run."""
        if event.n <= self._shared:
            return
        self._events += 1
        if event.type not in _COUNTED:
            return
        used = self._usage.count(event)
        match event.type:
            case ev.RunClaimed.type:
                self._began = self._began or event.time
            case ev.ModelCall.type if self._is_spent(event.time):
                self._turns_held.add(event.key)
            case ev.ModelResult.type:
                self._turns += 1
            case ev.RunPaused.type | ev.RunResumed.type | ev.ChildUsage.type:
                used = self._take_family_event(event)
            case ev.CancelRequested.type:
                # Turns that begin now belong to the clean-up.
                self._is_cancelled = True
                self._turns_held.clear()
            case ev.ChildEnd.type | ev.EffectCancelled.type:
                used = _subtract_reported(used, self._said.pop(event.key, Tally()))
                self._held.pop(event.key, None)
            case _:
                pass
        if used:
            self._charge(used, event.time)
        if event.type == ev.ChildUsage.type and (self._is_paused or self._reached_limits()):
            self._held[event.key] = None

    def _take_family_event(self, event: Event) -> list[ModelUsage]:
        """Process an event that begins or ends a pause, or reports the usage of a child; return that usage."""
        match ev.payload_of(event):
            case ev.RunPaused(reason="budget", by=by):
                self._is_paused, self.held = True, (by or "").startswith(ANCESTOR)
                self.paused_by.add(by or "")
                # Only a pause by the run's own budget raises its limits when it ends.
                self._times += by is None
            case ev.RunResumed():
                self._is_paused = self.held = False
                freed = list(self._held)[:HELD_MAX]
                # One resume may end several pauses, all of them numbered before the first is stored.
                self.releasing[event.n] = freed
                self._held = {key: None for key in self._held if key not in freed}
                if not self._is_spent(event.time):
                    self._turns_held.clear()
            case ev.ChildUsage(models=models, turns=turns):
                self._turns += turns
                said = self._said.setdefault(event.key, Tally())
                for one in models:
                    said.add(one)
                return models
            case _:
                pass
        return []

    def _charge(self, models: list[ModelUsage], at: dt.datetime) -> None:
        self._tokens += sum(one.usage.tokens for one in models)
        for one in models if self._limits.usd is not None else []:
            bill = self._prices.bill([one], at)
            self._bill += bill
            if bill.cost.is_partial:
                self._unpriced.append(one)

    def _is_spent(self, now: dt.datetime) -> bool:
        """Whether no model turn may begin."""
        return not self._is_cancelled and (self._is_paused or bool(self._used_up(now)))

    def due(self) -> dt.datetime | None:
        """The time at which the limit of seconds is reached, if there is one."""
        if self._limits.seconds is None or self._began is None:
            return None
        return self._began + dt.timedelta(seconds=self._limits.seconds * self._times)

    def used_up(self, now: dt.datetime) -> ev.RunPaused | ev.CancelRequested | None:
        """Return the event that pauses or cancels the run if a limit is reached, else None."""
        message = next((words for words in self._used_up(now) if words), "")
        if not message:
            return None
        if self._limits.then == "cancel":
            return ev.CancelRequested(reason=REASON, message=message, code=REASON)
        return ev.RunPaused(reason=REASON, message=message)

    def _used_up(self, now: dt.datetime) -> list[str]:
        if not self._is_limited:
            return []
        reached = self._reached_limits()
        due = self.due()
        if due is not None and self._limits.seconds is not None and now >= due:
            reached.append(f"{self._limits.seconds * self._times:g} seconds")
        return [f"the budget of the run is used up: {words}" for words in reached]

    def _reached_limits(self) -> list[str]:
        """The reached limits other than time, as texts."""
        limits = self._limits
        counted = (
            ("tokens", limits.tokens, self._tokens),
            ("turns of models", limits.turns, self._turns),
            ("events", limits.events, self._events),
        )
        reached = [
            f"{used} of {most * self._times} {what}"
            for what, most, used in counted
            if most is not None and used >= most * self._times
        ]
        return [*reached, *self._reached_dollars()]

    def _reached_dollars(self) -> list[str]:
        """The reached limit of dollars, as texts. Each resume permits one more turn of unknown price."""
        if self._limits.usd is None:
            return []
        reached: list[str] = []
        most, cost = Decimal(str(self._limits.usd)) * self._times, self._bill.cost
        if self._bill.pico >= most * PICO:
            reached.append(f"{dollars(Cost(cost.usd))} of ${most:f}")
        if len(self._unpriced) >= self._times:
            last = self._unpriced[-1]
            model = last.model or "a model that its log does not name"
            if last.unmetered:
                unmetered = f"an answer of {model} whose usage its provider did not report"
                return [*reached, f"{dollars(Cost(cost.usd))} and {unmetered}"]
            spent = f"{dollars(Cost(cost.usd))} and {cost.unknown_tokens} tokens of unknown price"
            reached.append(f"{spent}: the setting `prices` has no price of {model}")
        return reached


_NOTHING = ModelUsage("", Usage())


def _subtract_reported(models: list[ModelUsage], tally: Tally) -> list[ModelUsage]:
    """The part of a usage that was not reported before."""
    before = {(one.model, one.over): one for one in tally.view()}
    left = [
        msgspec.structs.replace(one, usage=one.usage - reported.usage, unmetered=one.unmetered - reported.unmetered)
        for one in models
        for reported in [before.get((one.model, one.over), _NOTHING)]
    ]
    return [one for one in left if one.counts]
