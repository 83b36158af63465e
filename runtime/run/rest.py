"""Rest: an active run that has nothing to do waits, lingers for a while and then parks.

Emits: run.parked, run.paused, run.resumed, timer.fired
"""

import datetime as dt
from collections.abc import Iterable, Iterator

import anyio
import structlog

from callboard.bus import events as ev
from callboard.bus.log.port import Alarm
from callboard.bus.model_waits import describe_wait, turn_of_call, turn_of_wait
from callboard.bus.subjects import partition_of
from callboard.projections.run.status import standing
from callboard.runtime.interpreter.waits import PendingEffect
from callboard.runtime.run.activation import Activation, ReceivedCommands, RunServices
from callboard.runtime.run.budget import REASON, RunBudget
from callboard.runtime.run.in_flight import InFlight

logger = structlog.get_logger(__name__)

LOOK_AGAIN_S = 0.1
"""Delay before checking again whether a command that was stored before a deadline has arrived."""

COMMAND_PATIENCE_S = 60.0
"""How long an elapsed deadline waits for such a command."""


class Rest:
    """Waits for an idle run: fires the deadlines that elapse, and parks the run when nothing is left to do here."""

    def __init__(self, active: Activation, services: RunServices, flight: InFlight, budget: RunBudget) -> None:
        self._active = active
        self._services = services
        self._budget = budget
        self._flight = flight
        self._idle_since: float | None = None
        self._clear_until = dt.datetime.min.replace(tzinfo=dt.UTC)
        """Every command that was stored up to this time has arrived."""
        self._unclear_since: float | None = None

    def over(self) -> None:
        """Restart the time of lingering, because the run was active."""
        self._idle_since = None

    def elapsed_deadline(self, stored: dt.datetime | None = None) -> dt.datetime | None:
        """Return the earliest open deadline if it has passed by the run's clock or before ``stored``.

        ``stored`` is a time at which the server stored a command, so the server's clock has reached it.
        """
        deadline = self._active.stage.waits.next_deadline()
        if deadline is None:
            return None
        now = self._active.runlog.clock()
        return deadline[0] if deadline[0] <= now or (stored is not None and deadline[0] < stored) else None

    def fire(self) -> bool:
        """Record the earliest deadline, which has elapsed; only one, because it may change the others.

        Return False if a command that the server stored before it may not have arrived yet: see `look`.
        """
        deadline = self._active.stage.waits.next_deadline()
        if deadline is None or deadline[0] > self._clear_until:
            return False
        due, key = deadline
        self._active.runlog.reach(due)
        self._flight.outcome(key, ev.TimerFired(due=self._active.stage.waits.deadline_of(key)))
        return True

    async def look(self, due: dt.datetime, heard: ReceivedCommands) -> None:
        """Check whether every command that was stored before an elapsed deadline has arrived; if not, wait briefly.

        :raises NoAnswer: if the log does not answer
        """
        active = self._active
        active.quieten()
        now, clock = anyio.current_time(), active.runlog.clock()
        earliest = await self._services.arrivals.earliest(active.ref, heard)
        if earliest is None or earliest > due:
            self._clear_until, self._unclear_since = max(due, clock if earliest is None else due), None
            return
        self._unclear_since = now if self._unclear_since is None else self._unclear_since
        if now - self._unclear_since < COMMAND_PATIENCE_S:
            await active.news(LOOK_AGAIN_S)
            return
        logger.warning("a command stored before a deadline has not arrived; the deadline counts", run=active.ref.run)
        self._clear_until, self._unclear_since = due, None

    def keep_budget(self) -> bool:
        """Record that the run has used up its own or a shared budget, unless it is paused or cancelled already.

        Otherwise record another resume, if children are still held because their releases did not fit into one batch.
        """
        if self._active.stage.is_stopped:
            return False
        now = self._active.runlog.clock()
        stated = self._budget.used_up(now) or self._shared_pause(now)
        if stated is None and self._budget.holds_back:
            stated = ev.RunResumed(step=self._active.stage.waits.stepping)
        if stated is None:
            return False
        self._active.runlog.state(stated)
        return True

    def _shared_pause(self, now: dt.datetime) -> ev.RunPaused | None:
        """The pause for a budget of the tenant or the definition. A resumed run is not paused again in its window."""
        active = self._active
        for one in self._services.allowances.exhausted_allowances(active.ref.tenant, active.runlog.definition, now):
            if one.pauses and one.mark not in self._budget.paused_by:
                message = f"the budget of {one.name} is used up: {one.sums}, until {one.until.isoformat()}"
                return ev.RunPaused(reason=REASON, by=one.mark, message=message)
        return None

    def _next_deadline(self) -> dt.datetime | None:
        """The next time at which the run continues without an event from outside."""
        deadline = self._active.stage.waits.next_deadline()
        dues = (
            deadline[0] if deadline is not None else None,
            None if self._active.stage.is_stopped else self._budget.due(),
        )
        return min((due for due in dues if due is not None), default=None)

    async def wait(self) -> None:
        """Wait until the run is woken, or park if it has lingered long enough."""
        self._active.quieten()
        if not self._flight.all_far_away():
            await self._wait(None)
            return
        now = anyio.current_time()
        self._idle_since = now if self._idle_since is None else self._idle_since
        linger_s = self._idle_since + self._services.park_linger_s - now
        if linger_s > 0:
            await self._wait(linger_s)
        elif not self._park():
            await self._wait(None)

    async def _wait(self, at_most_s: float | None) -> None:
        due = self._next_deadline()
        if due is not None:
            until_s = max(0.0, (due - self._active.runlog.clock()).total_seconds())
            at_most_s = until_s if at_most_s is None else min(until_s, at_most_s)
        await self._active.news(at_most_s)

    def _park(self) -> bool:
        """Park the run, unless its next deadline is too near to be worth it."""
        active = self._active
        due = self._next_deadline()
        if due is not None and (due - active.runlog.clock()).total_seconds() <= self._services.park_linger_s:
            return False
        waits = active.stage.waits
        status = standing(waits.intents(), paused=bool(waits.pauses()), cancelling=active.stage.cancelling)
        waits_for = "; ".join(dict.fromkeys(_postponed_turns(waits.effects.values())))
        active.runlog.state(ev.RunParked(waits.keys(), due, status, waits_for))
        # No event may follow it, as with the run's end.
        active.closing = True
        if due is not None:
            active.runlog.queue[-1].beside = Alarm(due, partition_of(active.ref, self._services.partitions))
        return True


def _postponed_turns(effects: Iterable[PendingEffect]) -> Iterator[str]:
    """Yield which models open timers wait for, and why."""
    for effect in effects:
        turn = turn_of_wait(effect.event.key) if isinstance(effect.intent, ev.TimerSet) else ""
        calls = [key for key in effect.node.replies if turn and turn_of_call(key) == turn]
        if calls and (error := effect.node.replies[calls[-1]].error) is not None:
            yield describe_wait(effect.node.calls[calls[-1]].model, error)
