"""The status of a run, as a fold of its events. The statuses are the same for all languages."""

from collections.abc import Iterable
from typing import Literal

from callboard.bus import events as ev
from callboard.bus.events import Event, Payload
from callboard.projections.run.effects import Opened, OpenIntents

RunStatus = Literal[
    "accepted",
    "running",
    "waiting:human",
    "waiting:tool",
    "waiting:timer",
    "waiting:signal",
    "waiting:child",
    "waiting:code",
    "paused",
    "cancelling",
    "diverged",
    "quarantined",
    "completed",
    "failed",
    "cancelled",
    "expired",
]

WAITING_TIMERS = frozenset({"sleep", "delay", "wait"})
"""Purposes of timers that a run itself waits for. Other timers accompany a retry or a question."""

_COMPANION_TIMERS = frozenset({"answer", "warning", "expiry"})


def waiting_for(opened: Iterable[Payload]) -> RunStatus | None:
    """Return the waiting status for the open intents of a run; None if it is working.

    A question to a person has priority, then a tool that the caller answers. A signal, a child run or a timer count
    only if no other intent is open.
    """
    found: set[RunStatus] = set()
    busy = False
    for intent in opened:
        match intent:
            case ev.HumanAsked():
                return "waiting:human"
            case ev.ToolCall(via="caller"):
                found.add("waiting:tool")
            case ev.SignalAwaited():
                found.add("waiting:signal")
            case ev.ChildStart():
                found.add("waiting:child")
            case ev.TimerSet(purpose=purpose) if purpose in WAITING_TIMERS:
                found.add("waiting:timer")
            case ev.TimerSet(purpose=purpose) if purpose in _COMPANION_TIMERS:
                pass
            case _:
                busy = True
    if "waiting:tool" in found:
        return "waiting:tool"
    if busy:
        return None
    order: tuple[RunStatus, ...] = ("waiting:signal", "waiting:child", "waiting:timer")
    return next((status for status in order if status in found), None)


def standing(opened: Iterable[Payload], *, paused: bool, cancelling: bool) -> RunStatus:
    """Return the status of a run that has started and not ended, from its open intents."""
    if cancelling:
        return "cancelling"
    return "paused" if paused else waiting_for(opened) or "running"


class StatusFold:
    """Folds one run into its open intents and its status."""

    def __init__(self) -> None:
        self.open = OpenIntents()
        self._started = False
        self._cancelling = False
        self._divergence: RunStatus | None = None
        self._final: RunStatus | None = None

    def apply(self, event: Event, payload: Payload) -> Opened | None:
        """Apply an event. Return the intent that it closes, if it closes one."""
        closed = self.open.apply(event, payload)
        match payload:
            case ev.RunStart():
                self._started = True
            case ev.CancelRequested():
                self._cancelling = True
            case ev.RunDiverged():
                self._divergence = payload.status
            case ev.RunClaimed():
                # A worker claims a diverged run only after it has replayed it.
                self._divergence = None
            case ev.RunQuarantined():
                self._final = "quarantined"
            case ev.RunFailed():
                self._final = "failed"
            case ev.RunEnd():
                self._final = payload.status
                self.open.clear()
            case _:
                pass
        return closed

    @property
    def status(self) -> RunStatus:
        """Return the status after the events so far."""
        if self._final:
            return self._final
        if self._divergence:
            return self._divergence
        opened = [each.payload for each in self.open]
        paused = any(isinstance(intent, ev.RunPaused) for intent in opened)
        if not (self._started or paused or self._cancelling):
            return "accepted"
        return standing(opened, paused=paused, cancelling=self._cancelling)
