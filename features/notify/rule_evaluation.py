"""Judging: decide whether a rule has a notice about an event, from the log alone, so always with the same result.

An event that waits is examined after the time of the rule; if it has been answered by then, there is no notice.
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
from callboard.projections.projection import known_payload
from callboard.runtime.admission.refusals import START, read_refusal
from callboard.runtime.settings.notify_settings import NotifyRule, On
from callboard.runtime.settings.rule_settings import question

DATA_CHARS_MAX = 1_500
"""Limit of the data of a question in a notice, in characters."""

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
"""The types of events for each occasion; refusals of starts are missing, since they are not events of a run."""

_BUDGET = "budget"
_REJECTED = "rejected"


class Later(msgspec.Struct, frozen=True):
    """The event has not waited long enough, and has to be judged again when it is due."""

    due: dt.datetime


def filters(rule: NotifyRule, subjects: Subjects) -> list[str]:
    """Return the subjects of the events and refusals that a rule needs."""
    types = dict.fromkeys(one for on in rule.on for one in _EVENTS[on])
    rejections = [subjects.rejections(rule.tenant)] if _REJECTED in rule.on else []
    return [*(subjects.events(rule.tenant, event_type=one) for one in types), *rejections]


class Judge:
    """Judges events by one rule; ``turns`` limits how many at once, ``http_url`` is the address of the page, if any.

    It cannot decrypt the texts of encrypted runs, so no notice contains or depends on them.
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
        """Return the notice about an event, or when to judge it again; None if the rule has no notice.

        Events after ``until`` are ignored.

        :raises NoAnswer: if the log does not answer
        """
        async with self._turns:
            event = await told_by(self._log, item)
            payload = known_payload(event)
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
        """Return the notice about a refusal, stored at a sequence and a time; None if the rule has none.

        Only refusals of schedules are reported: other senders get an answer.
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
    """Return what an event waits for, including the data of a question; None if it does not wait."""
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
