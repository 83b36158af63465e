"""Judging: what a rule has to say of an event of a run, if anything; told from the log alone, and always the same.

What waits is looked at when it has waited long enough: whoever was answered meanwhile is not told of.
"""

import datetime as dt
from collections.abc import Mapping
from functools import partial

import anyio
import msgspec

from callboard.bus import events as ev
from callboard.bus.log.port import EventLog, Recorded
from callboard.bus.subjects import RunRef, Subjects
from callboard.features.notify.notice import Notice, made, of_rejection, short
from callboard.features.notify.seen import Seen, told_by
from callboard.projections.lists.question_data import data_lines
from callboard.projections.projection import known
from callboard.runtime.admission.refusals import START, read_refusal
from callboard.runtime.settings.notify_settings import NotifyRule, On
from callboard.runtime.settings.rule_settings import question

DATA_CHARS_MAX = 1_500
"""How much a notice tells of what a question is about."""

_WAITS = (ev.HumanAsked.type, ev.SignalAwaited.type, ev.RunPaused.type)

_EVENTS: Mapping[On, tuple[str, ...]] = {
    "completed": (ev.RunEnd.type,),
    "failed": (ev.RunEnd.type,),
    "cancelled": (ev.RunEnd.type,),
    "expired": (ev.RunEnd.type,),
    "quarantined": (ev.RunQuarantined.type,),
    "diverged": (ev.RunDiverged.type,),
    "budget": (ev.RunPaused.type, ev.CancelRequested.type),
    "rejected": (),
    "waiting": _WAITS,
}
"""The events that a rule has to see; refusals of starts are not among them, since they belong to no run."""

_BUDGET = "budget"
_REJECTED = "rejected"


class Later(msgspec.Struct, frozen=True):
    """It is to be looked at again at an instant: by then it has waited long enough."""

    due: dt.datetime


def filters(rule: NotifyRule, subjects: Subjects) -> list[str]:
    """The subjects of the events and refusals that a rule has to see."""
    types = dict.fromkeys(one for on in rule.on for one in _EVENTS[on])
    rejections = [subjects.rejections(rule.tenant)] if _REJECTED in rule.on else []
    return [*(subjects.events(rule.tenant, event_type=one) for one in types), *rejections]


class Judge:
    """Judges events by one rule, no more at once than there are ``turns``; ``http_url`` is where people reach the page,
    None if nowhere.

    What the words of an encrypted run are it does not know: no notice tells them, or follows from them.
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        rule: NotifyRule,
        http_url: str | None,
        turns: anyio.CapacityLimiter | None = None,
    ) -> None:
        self._log = log.without_keys()
        self._name = name
        self._rule = rule
        self._http_url = http_url
        self._turns = turns or anyio.CapacityLimiter(1)

    async def judge(self, item: Recorded, now: dt.datetime, until: dt.datetime | None = None) -> Notice | Later | None:
        """Say what is to be told of an event, or when it is to be looked at again; None: nothing.

        What happened after ``until`` is left out of account.

        :raises NoAnswer: if the log does not answer
        """
        async with self._turns:
            event = await told_by(self._log, item)
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
            seen = Seen(item.ref, question(self._rule.where) if self._rule.where else None, until)
            try:
                await seen.read(self._log, event.n)
                waits = notice.on == "waiting"
                return notice if (not waits or notice.n in seen.open) and seen.matches() else None
            finally:
                seen.close()

    def judge_refusal(self, tenant: str, sequence: int, time: dt.datetime, data: bytes) -> Notice | None:
        """Say what is to be told of a refusal, stored at a sequence and a time; None: nothing.

        Whoever sends a start is answered, but a schedule is not.
        """
        refused = read_refusal(data)
        if refused is None or refused.verb != START or not refused.schedule or _REJECTED not in self._rule.on:
            return None
        return of_rejection(self._name, tenant, refused, sequence, time)

    def _of(self, ref: RunRef, event: ev.Event, payload: ev.Payload) -> Notice | None:
        tell = partial(made, self._name, ref=ref, event=event, http_url=self._http_url)
        name, wants = event.definition or ref.run, self._rule.on
        match payload:
            case ev.RunEnd(status=status, error=error) if status in wants:
                because = f": {error.code}: {short(error.message)}" if error is not None else ""
                return tell(on=status, text=f"{name} {status}{because}", failure=error)
            case ev.RunQuarantined() if "quarantined" in wants:
                return tell(on="quarantined", text=f"{name} is quarantined: {payload.code}: {short(payload.message)}")
            case ev.RunDiverged() if "diverged" in wants:
                return tell(on="diverged", text=f"{name} has diverged: {payload.code}: {short(payload.message)}")
            case ev.RunPaused(reason="budget") if _BUDGET in wants:
                return tell(on=_BUDGET, text=f"{name} is paused: {payload.message}", key=event.key)
            case ev.CancelRequested(code="budget") if _BUDGET in wants:
                return tell(on=_BUDGET, text=f"{name} is cancelled: {payload.message}")
            case _ if wants == ("waiting",) and (what := awaited_text(payload)) is not None:
                told = f"{name} has waited longer than {self._rule.longer_than} {what}"
                return tell(on="waiting", text=told, key=event.key)
            case _:
                return None


def awaited_text(payload: ev.Payload) -> str | None:
    """Say what an event waits for, and of a question what it is about; None if it waits for nobody."""
    match payload:
        case ev.HumanAsked():
            whom = f" by {payload.channel_type}" if payload.channel_type else ""
            about = "\n".join(data_lines(payload.request_data, payload.question, DATA_CHARS_MAX))
            return f"for an answer{whom}: {short(payload.question)}" + (f"\n{about}" if about else "")
        case ev.SignalAwaited():
            return f"for the signal {payload.name}"
        case ev.RunPaused():
            why = payload.message or (f"at {payload.step}" if payload.step else payload.reason)
            return f"to be resumed: paused, {why}"
        case _:
            return None
