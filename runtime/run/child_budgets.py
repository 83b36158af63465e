"""Child budgets: what child runs use counts at their ancestors while they go on, where one of these has a limit.

A child whose ancestor has one tells its parent of each turn, in one batch with the turn's outcome; the parent records
that and tells its own parent likewise. A run that has used its budget up, or is held itself, holds each child that
tells of a turn, in one batch with the record; when it goes on, those that it has held do. So what a child has under way
when the budget is reached, and what it begins before it is held, is all that it still uses.

Consumes: usage, hold, release
Emits: child.usage, run.paused, run.resumed
"""

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import ChildUsed, Hold
from callboard.bus.effects import used_by
from callboard.bus.events import Event
from callboard.bus.log.port import RunMessage
from callboard.bus.subjects import RunRef
from callboard.runtime.run.activation import Activation, Command
from callboard.runtime.run.budget import ANCESTOR, REASON, Budget
from callboard.runtime.run.inbox import Inbox

TOLD = frozenset({ev.ModelResult.type, ev.EffectResult.type, ev.ChildUsage.type})
"""Events of a child that its parent is told of."""


class ChildBudgets:
    """One active run between its parent, if that wants to know what it uses, and its children."""

    def __init__(self, active: Activation, budget: Budget, inbox: Inbox, parent: ev.Parent | None) -> None:
        self._active = active
        self._budget = budget
        self._inbox = inbox
        self._parent = parent if parent is not None and parent.counts else None

    @property
    def counts(self) -> bool:
        """Whether children are to tell what they use."""
        return self._budget.counts_children or self._parent is not None

    # -- what one is told ---------------------------------------------------------------------------------------------

    def heed(self, command: Command) -> bool:
        """Number what a run of the family says; False if there is nothing to it any more."""
        match command.verb:
            case "usage":
                return self._take(command)
            case "hold" if not self._stopped():
                held = msgspec.json.decode(command.body, type=Hold)
                self._record(ev.RunPaused(reason=REASON, by=held.by, message=held.message), command)
                return True
            case "release" if self._budget.held:
                # A breakpoint that was reached meanwhile is somebody else's to end.
                self._record(ev.RunResumed(by=msgspec.json.decode(command.body, type=Hold).by), command)
                return True
            case _:
                return False

    def _take(self, command: Command) -> bool:
        told = msgspec.json.decode(command.body, type=ChildUsed)
        waits = self._active.stage.waits
        effect = waits.effects.get(told.key)
        if effect is None or not isinstance(effect.intent, ev.ChildStart) or not waits.is_open(told.key):
            return False  # Its end has said all of it.
        self._record(ev.ChildUsage(told.child, told.models, told.turns), command, told.key)
        return True

    def _record(self, payload: ev.Payload, command: Command, key: str = "") -> None:
        self._inbox.recorded_as(command, self._state(payload, key, command.sequence).n)

    def _state(self, payload: ev.Payload, key: str, cause: int = 0) -> Event:
        active = self._active
        event = active.runlog.state(payload, key=key, cause=cause, node=active.stage.waits.address_of(key))
        if payload.kind == "outcome" and key:
            active.stage.ledger.numbered(key, event)
        return event

    def _stopped(self) -> bool:
        stage = self._active.stage
        return stage.waits.paused or stage.cancelling or stage.killed is not None

    # -- what one tells -----------------------------------------------------------------------------------------------

    def concerns(self, event: Event) -> bool:
        """Whether an event may concern another run of the family, so that `run_messages` is to be asked about it."""
        if event.type in TOLD and self._parent is not None:
            return True
        return event.type == ev.ChildUsage.type or bool(self._budget.releasing.get(event.n))

    def run_messages(self, event: Event) -> list[RunMessage]:
        """Return what is to be stored with an event for other runs of the family."""
        if not self.concerns(event):
            return []
        ref, by = self._active.ref, f"{ANCESTOR}{self._active.ref.run}"
        told = self._told(event)
        found = [] if told is None or self._parent is None else [_told(ref, self._parent, told)]
        if event.type == ev.ChildUsage.type and self._budget.holds(event.key):
            message = f"the budget of {by} is used up"
            found.append(RunMessage(self._child(event.key), "hold", msgspec.json.encode(Hold(by, message))))
        freed = self._budget.releasing.pop(event.n, [])
        found += [RunMessage(self._child(key), "release", msgspec.json.encode(Hold(by))) for key in freed]
        return found

    def _child(self, key: str) -> RunRef:
        return RunRef(self._active.ref.tenant, self._active.stage.asks.child_id(key))

    def _told(self, event: Event) -> ChildUsed | None:
        """What the parent is told of an event."""
        key, run = self._parent.key if self._parent is not None else "", self._active.ref.run
        match ev.payload_of(event):
            case ev.ModelResult(model=model) as result:
                return ChildUsed(key, run, [one for one in used_by(model, result) if one.counts], turns=1)
            case ev.EffectResult(model=model) as result if result.usage.tokens or result.unmetered:
                return ChildUsed(key, run, used_by(model, result))
            case ev.ChildUsage(models=models, turns=turns):
                return ChildUsed(key, run, models, turns)
            case _:
                return None


def _told(ref: RunRef, parent: ev.Parent, told: ChildUsed) -> RunMessage:
    return RunMessage(RunRef(ref.tenant, parent.run), "usage", msgspec.json.encode(told))
