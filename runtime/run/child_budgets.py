"""Child budgets: count the usage of running child runs at their ancestors, if one of these has a limit.

A child whose ancestor has a limit reports each turn to its parent, in one batch with the turn's outcome; the parent
records the report and passes it on to its own parent. A run that has used up its budget, or is held itself, holds each
child that reports a turn, in one batch with the record, and releases these children when it is resumed. So after the
budget is reached, a child only uses what was already running and what it begins before it is held.

Consumes: usage, hold, release
Emits: child.usage, run.paused, run.resumed
"""

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import ChildUsed, Hold
from callboard.bus.effects import used_by
from callboard.bus.events import Event
from callboard.bus.log.port import RunMessage
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.runtime.interpreter.stage import RunStage
from callboard.runtime.run.activation import Command
from callboard.runtime.run.budget import ANCESTOR, REASON, RunBudget
from callboard.runtime.run.inbox import Inbox
from callboard.runtime.run.log import RunLog

REPORTED = frozenset({ev.ModelResult.type, ev.EffectResult.type, ev.ChildUsage.type})
"""Events of a child that are reported to its parent."""

CONCERN_FAMILY = REPORTED | {ev.RunResumed.type}
"""Events that may concern the parent or a child."""


class ChildBudgets:
    """Budget messages of one active run: to its parent, if that counts its usage, and from and to its children."""

    def __init__(self, runlog: RunLog, budget: RunBudget, inbox: Inbox, parent: ev.Parent | None) -> None:
        self._runlog = runlog
        self._budget = budget
        self._inbox = inbox
        self._parent = parent if parent is not None and parent.counts else None

    @property
    def counts(self) -> bool:
        """Whether children must report their usage."""
        return self._budget.counts_children or self._parent is not None

    # -- receiving ----------------------------------------------------------------------------------------------------

    def heed(self, stage: RunStage, command: Command) -> bool:
        """Number the event of a message from the parent or a child; return False if it no longer matters."""
        match command.verb:
            case "usage":
                return self._take_usage(stage, command)
            case "hold" if not stage.is_stopped:
                held = msgspec.json.decode(command.body, type=Hold)
                self._record(stage, ev.RunPaused(reason=REASON, by=held.by, message=held.message), command)
                return True
            case "release" if self._budget.held:
                # Without a key: a breakpoint that was reached in the meantime stays.
                self._record(stage, ev.RunResumed(by=msgspec.json.decode(command.body, type=Hold).by), command)
                return True
            case _:
                return False

    def _take_usage(self, stage: RunStage, command: Command) -> bool:
        used = msgspec.json.decode(command.body, type=ChildUsed)
        if not stage.waits.is_open_child(used.key):
            return False  # The child's end has reported all of its usage.
        self._record(stage, ev.ChildUsage(used.child, used.models, used.turns), command, used.key)
        return True

    def _record(self, stage: RunStage, payload: ev.Payload, command: Command, key: str = "") -> None:
        node = stage.waits.address_of(key)
        event = self._runlog.state(payload, key=key, cause=command.sequence, node=node)
        if payload.kind == "outcome" and key:
            stage.ledger.record_outcome(key, event)
        self._inbox.recorded_as(command, event.n)

    # -- sending ------------------------------------------------------------------------------------------------------

    def concerns(self, event: Event) -> bool:
        """Whether an event may concern the parent or a child, so that `run_messages` must be called for it."""
        if event.type in REPORTED and self._parent is not None:
            return True
        return event.type == ev.ChildUsage.type or bool(self._budget.releasing.get(event.n))

    def run_messages(self, event: Event) -> list[RunMessage]:
        """Return the messages to the parent and to children that must be stored with an event."""
        if not self.concerns(event):
            return []
        ref, by = self._runlog.ref, f"{ANCESTOR}{self._runlog.ref.run}"
        report = self._usage_report(event)
        found = [] if report is None or self._parent is None else [_usage_message(ref, self._parent, report)]
        if event.type == ev.ChildUsage.type and self._budget.holds(event.key):
            message = f"the budget of {by} is used up"
            found.append(RunMessage(self._child(event.key), "hold", msgspec.json.encode(Hold(by, message))))
        freed = self._budget.releasing.pop(event.n, [])
        found += [RunMessage(self._child(key), "release", msgspec.json.encode(Hold(by))) for key in freed]
        return found

    def _child(self, key: str) -> RunRef:
        return RunRef(self._runlog.ref.tenant, child_id(self._runlog.ref.run, key))

    def _usage_report(self, event: Event) -> ChildUsed | None:
        """The report of an event to the parent, if it has one."""
        key, run = self._parent.key if self._parent is not None else "", self._runlog.ref.run
        match ev.payload_of(event):
            case ev.ModelResult(model=model) as result:
                return ChildUsed(key, run, [one for one in used_by(model, result) if one.counts], turns=1)
            case ev.EffectResult(model=model) as result if result.usage.tokens or result.unmetered:
                return ChildUsed(key, run, used_by(model, result))
            case ev.ChildUsage(models=models, turns=turns):
                return ChildUsed(key, run, models, turns)
            case _:
                return None


def _usage_message(ref: RunRef, parent: ev.Parent, report: ChildUsed) -> RunMessage:
    return RunMessage(RunRef(ref.tenant, parent.run), "usage", msgspec.json.encode(report))
