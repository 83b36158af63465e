"""The budget of a run: what it may use, counted from its log; used up, the run is paused or cancelled.

Nothing here is the interpreter's: what becomes of it stands in the log like a command of somebody outside. Each time
that somebody has a run go on which its budget has paused, it may use as much again.

Emits: run.paused, cancel.requested
"""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Limits
from callboard.bus.effects import ModelUsage
from callboard.bus.events import Event
from callboard.bus.prices import PICO, Bill, Cost, Prices, dollars
from callboard.runtime.interpreter.usage import UsageFold

REASON = "budget"


class Budget:
    """Counts what one run has used, of its ``limits`` as they were started with; what that costs, ``prices`` say.
    ``shared`` is the number of the last event that a fork has of its origin, which has paid for what is up to there."""

    def __init__(self, limits: Mapping[str, Any], prices: Prices, shared: int = 0) -> None:
        self._limits = msgspec.convert(dict(limits), Limits)
        self._prices = prices
        self._bill = Bill()
        self._unpriced: list[str] = []
        self._shared = shared
        self._usage = UsageFold()
        self._turns = 0
        self._events = 0
        self._times = 1
        self._began: dt.datetime | None = None

    def take(self, event: Event) -> None:
        """Take the next event of the run."""
        if event.n <= self._shared:
            return
        self._events += 1
        self._charge(self._usage.count(event), event.time)
        match event.type:
            case ev.RunClaimed.type:
                self._began = self._began or event.time
            case ev.ModelResult.type:
                self._turns += 1
            case ev.RunPaused.type:
                paused = ev.payload_of(event)
                self._times += isinstance(paused, ev.RunPaused) and paused.reason == REASON
            case _:
                pass

    def _charge(self, models: list[ModelUsage], at: dt.datetime) -> None:
        for one in models if self._limits.usd is not None else []:
            bill = self._prices.bill([one], at)
            self._bill += bill
            if bill.unknown_tokens:
                self._unpriced.append(one.model)

    def due(self) -> dt.datetime | None:
        """When its time is used up, if that is limited."""
        if self._limits.seconds is None or self._began is None:
            return None
        return self._began + dt.timedelta(seconds=self._limits.seconds * self._times)

    def used_up(self, now: dt.datetime) -> ev.RunPaused | ev.CancelRequested | None:
        """What becomes of the run if it has used something up, else None."""
        told = next((words for words in self._used_up(now) if words), "")
        if not told:
            return None
        if self._limits.then == "cancel":
            return ev.CancelRequested(reason=REASON, message=told)
        return ev.RunPaused(reason=REASON, message=told)

    def _used_up(self, now: dt.datetime) -> list[str]:
        limits, total = self._limits, self._usage.total
        counted = (
            ("tokens", limits.tokens, total.input_tokens + total.output_tokens),
            ("turns of models", limits.turns, self._turns),
            ("events", limits.events, self._events),
        )
        told = [
            f"{used} of {most * self._times} {what}"
            for what, most, used in counted
            if most is not None and used >= most * self._times
        ]
        told += self._money()
        due = self.due()
        if due is not None and limits.seconds is not None and now >= due:
            told.append(f"{limits.seconds * self._times:g} seconds")
        return [f"the budget of the run is used up: {words}" for words in told]

    def _money(self) -> list[str]:
        """What is to be said of dollars: of a turn whose price nobody knows, that; each grant lets one more go."""
        if self._limits.usd is None:
            return []
        told: list[str] = []
        most, cost = Decimal(str(self._limits.usd)) * self._times, self._bill.cost
        if self._bill.pico >= most * PICO:
            told.append(f"{dollars(Cost(cost.usd))} of ${most:f}")
        if len(self._unpriced) >= self._times:
            model = self._unpriced[-1] or "a model that its log does not name"
            spent = f"{dollars(Cost(cost.usd))} and {cost.unknown_tokens} tokens of unknown price"
            told.append(f"{spent}: what {model} costs stands in no table (the setting `prices`)")
        return told
