"""The budget of a run: what it may use, counted from its log; used up, the run is paused or cancelled.

Nothing here is the interpreter's: what becomes of it stands in the log like a command of somebody outside. Each time
that somebody has a run go on which its budget has paused, it may use as much again.

Emits: run.paused, cancel.requested
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Limits
from callboard.bus.events import Event
from callboard.runtime.interpreter.usage import UsageFold

REASON = "budget"


class Budget:
    """Counts what one run has used, of its ``limits`` as they were started with; ``shared`` is the number of the last
    event that a fork has of its origin, which has paid for what is up to there."""

    def __init__(self, limits: Mapping[str, Any], shared: int = 0) -> None:
        self._limits = msgspec.convert(dict(limits), Limits)
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
        self._usage.count(event)
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
        due = self.due()
        if due is not None and limits.seconds is not None and now >= due:
            told.append(f"{limits.seconds * self._times:g} seconds")
        return [f"the budget of the run is used up: {words}" for words in told]
