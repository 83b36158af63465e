"""Judging: what a rule has to say of an event of a run, if anything; told from the log alone, and always the same.

What waits is looked at when it has waited long enough: whoever was answered meanwhile is not told of.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from anyio import to_thread

from callboard.bus import events as ev
from callboard.bus.log import EventLog, NoAnswer, Recorded, whole
from callboard.bus.subjects import RunRef, Subjects
from callboard.projections.projection import known
from callboard.projections.status import StatusFold
from callboard.projections.where import Where
from callboard.runtime.api.statuses import depends
from callboard.runtime.index.store import RunIndex, Taken
from callboard.runtime.notify.notice import Notice, made, short
from callboard.runtime.run.log import read_run
from callboard.runtime.settings.notify_settings import NotifyRule, On
from callboard.runtime.settings.rule_settings import question

_WAITS = (ev.HumanAsked.type, ev.SignalAwaited.type, ev.RunPaused.type)

_EVENTS: Mapping[On, tuple[str, ...]] = {
    "completed": (ev.RunEnd.type,),
    "failed": (ev.RunEnd.type,),
    "cancelled": (ev.RunEnd.type,),
    "expired": (ev.RunEnd.type,),
    "quarantined": (ev.RunQuarantined.type,),
    "budget": (ev.RunPaused.type, ev.CancelRequested.type),
    "waiting": _WAITS,
}
"""The events that a rule has to see."""

_BUDGET = "budget"


class Later(msgspec.Struct, frozen=True):
    """It is to be looked at again at an instant: by then it has waited long enough."""

    due: dt.datetime


def filters(rule: NotifyRule, subjects: Subjects) -> list[str]:
    """The subjects of the events that a rule has to see."""
    types = dict.fromkeys(one for on in rule.on for one in _EVENTS[on])
    return [subjects.events(rule.tenant, event_type=one) for one in types]


class Judge:
    """Judges events by one rule; ``http_url`` is where people reach the page, None if nowhere."""

    def __init__(self, log: EventLog, name: str, rule: NotifyRule, http_url: str | None) -> None:
        self._log = log
        self._name = name
        self._rule = rule
        self._http_url = http_url

    async def judge(self, item: Recorded, now: dt.datetime, until: dt.datetime | None = None) -> Notice | Later | None:
        """Say what is to be told of an event, or when it is to be looked at again; None: nothing.

        What happened after ``until`` is left out of account.

        :raises NoAnswer: if the log does not answer
        """
        event = await whole(self._log, item)
        payload = known(event)
        notice = self._of(item.ref, event, payload) if payload is not None else None
        if notice is None:
            return None
        if notice.on == "waiting":
            due = event.time + dt.timedelta(seconds=self._rule.wait_s)
            if now < due:
                return Later(due)
        elif not self._rule.where:
            return notice
        events = await self._read(item.ref, event.n)
        if until is not None:
            events = [one for one in events if one.event.time <= until]
        # Runs share the loop, and one may have many events.
        return notice if await to_thread.run_sync(partial(self._holds, notice, item.ref, events)) else None

    def _holds(self, notice: Notice, ref: RunRef, events: Sequence[Recorded]) -> bool:
        """Whether what waits is open still, and the question of the rule holds."""
        if notice.on == "waiting" and notice.n not in _open(events):
            return False
        return not self._rule.where or _matches(question(self._rule.where), ref, events)

    async def _read(self, ref: RunRef, n: int) -> list[Recorded]:
        """Read a run up to an event of it at least; nothing if it has been purged.

        :raises NoAnswer: if the log does not answer, or whoever answers has not come so far
        """
        found = await read_run(self._log, ref)
        if (not found or found[-1].event.n < n) and await self._log.last(ref) is not None:
            raise NoAnswer(f"event {n} of run {ref.run} is not there yet")
        return found

    def _of(self, ref: RunRef, event: ev.Event, payload: ev.Payload) -> Notice | None:
        tell = partial(made, self._name, ref=ref, event=event, http_url=self._http_url)
        name, wants = event.definition or ref.run, self._rule.on
        match payload:
            case ev.RunEnd(status=status, error=error) if status in wants:
                because = f": {error.code}: {short(error.message)}" if error is not None else ""
                return tell(on=status, text=f"{name} {status}{because}", failure=error)
            case ev.RunQuarantined() if "quarantined" in wants:
                return tell(on="quarantined", text=f"{name} is quarantined: {payload.code}: {short(payload.message)}")
            case ev.RunPaused(reason="budget") if _BUDGET in wants:
                return tell(on=_BUDGET, text=f"{name} is paused: {payload.message}", key=event.key)
            case ev.CancelRequested(reason="budget") if _BUDGET in wants:
                return tell(on=_BUDGET, text=f"{name} is cancelled: {payload.message}")
            case _ if wants == ("waiting",) and (what := _awaited(payload)) is not None:
                told = f"{name} has waited longer than {self._rule.longer_than} {what}"
                return tell(on="waiting", text=told, key=event.key)
            case _:
                return None


def _awaited(payload: ev.Payload) -> str | None:
    match payload:
        case ev.HumanAsked():
            whom = f" by {payload.channel_type}" if payload.channel_type else ""
            return f"for an answer{whom}: {short(payload.question)}"
        case ev.SignalAwaited():
            return f"for the signal {payload.name}"
        case ev.RunPaused():
            why = payload.message or (f"at {payload.step}" if payload.step else payload.reason)
            return f"to be resumed: paused, {why}"
        case _:
            return None


def _folded(events: Sequence[Recorded]) -> StatusFold:
    fold = StatusFold()
    for item in events:
        payload = known(item.event) if item.readable else None
        if payload is not None:
            fold.apply(item.event, payload)
    return fold


def _open(events: Sequence[Recorded]) -> set[int]:
    """The numbers of the events that announced what is open still."""
    return {each.event.n for each in _folded(events).open}


def _matches(wanted: Where, ref: RunRef, events: Sequence[Recorded]) -> bool:
    """Whether a question about runs holds for a run, as it does of all runs."""
    # What a fork shares with its origin stands in no row of its own.
    taken = [Taken(item.sequence, item.event) for item in events if item.ref == ref and item.readable]
    index = RunIndex(None, "", 1)
    try:
        index.take(taken, taken[-1].sequence if taken else 0)
        if depends(wanted):
            index.tell({ref.run: _folded(events).status})
        return index.matching(wanted) > 0
    finally:
        index.close()
