"""Child reports: record in a run that its children have begun or ended, as `callboard.runtime.run.children` reports."""

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Wake
from callboard.bus.events import Event
from callboard.runtime.run.activation import Activation, Command
from callboard.runtime.run.in_flight import InFlight
from callboard.runtime.run.inbox import Inbox


class ChildReports:
    """`callboard.runtime.run.children.Keeper` of an active run."""

    def __init__(self, active: Activation, flight: InFlight, inbox: Inbox) -> None:
        self._active = active
        self._flight = flight
        self._inbox = inbox

    def lose(self, event: Event) -> None:
        self._active.lose(event)

    @property
    def killed(self) -> bool:
        return self._active.stage.killed is not None

    def child_id(self, key: str) -> str:
        return self._active.stage.asks.child_id(key)

    def look_at(self, wake: Command) -> bool:
        """Have an announced end of a child checked; return False if the run no longer waits for that child."""
        key = msgspec.json.decode(wake.body, type=Wake).key
        waits = self._active.stage.waits
        effect = waits.effects.get(key)
        if effect is None or not isinstance(effect.intent, ev.ChildStart) or not waits.is_open(key):
            return False
        self._flight.children.wake(key, wake)
        return True

    def child_begun(self, key: str) -> None:
        self._flight.let_go(key)
        self._active.wake()

    def child_ended(self, key: str, end: ev.ChildEnd, wake: Command | None = None) -> None:
        n = self._active.runlog.n
        self._flight.outcome(key, end, cause=wake.sequence if wake is not None else 0)
        if wake is None:
            return
        if self._active.runlog.n == n:
            # Too late: leave the command in the inbox, where it is acknowledged after the event that made it pointless.
            self._inbox.waiting.append(wake)
            self._active.wake()
        else:
            self._inbox.recorded_as(wake, self._active.runlog.n)
