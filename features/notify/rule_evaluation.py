"""Judging: decide whether a rule has a notice about an event, from the log alone, so always with the same result.

An event that waits is examined after the time of the rule; if it has been answered by then, there is no notice. A run's
open questions, and whether the run matches a query, are read in pages that are dropped after use, since a run may have
any number of events and bytes. A preview has the notices that rules would have sent about the events in the log.
"""

import datetime as dt
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.log.port import EventLog, LogReader, NoAnswer, whole
from callboard.bus.log.recorded import Recorded, decode_recorded
from callboard.bus.nats.cooling import cold_runs
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.stored_messages import Copied
from callboard.bus.subjects import RunRef, Subjects
from callboard.features.index.store import IndexedEvent, RunIndex
from callboard.features.notify.notice import Notice, made, of_rejection, short
from callboard.projections.lists.question_data import data_lines
from callboard.projections.lists.runs import tests_events
from callboard.projections.lists.where import Where
from callboard.projections.projection import known_payload
from callboard.projections.run.status import StatusFold
from callboard.runtime.admission.refusals import START, read_refusal
from callboard.runtime.settings.notify_settings import NotifyRule, On
from callboard.runtime.settings.rule_settings import question

PAGE_EVENTS = 500
PAGE_BYTES = 4 * 1024 * 1024
"""Limits of one page, in events and (approximately) bytes."""


async def told_by(log: LogReader, item: Recorded) -> Event:
    """Return an event without its large values, unless a required member is one of them.

    :raises NoAnswer: if the log does not answer
    """
    try:
        known_payload(item.event)
    except msgspec.ValidationError:
        return await whole(log, item)
    return item.event


class ObservedRun:
    """One run, as far as it has been read; ``wanted`` is the query about it. Events after ``until`` are ignored.

    It has to be closed, since it keeps an index of the run for the query.
    """

    def __init__(self, ref: RunRef, wanted: Where | None, until: dt.datetime | None) -> None:
        self._ref = ref
        self._wanted = wanted
        self._until = until
        self._fold = StatusFold()
        self._index = RunIndex(None, "", 1) if wanted is not None else None
        self._last = 0

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()

    @property
    def open(self) -> set[int]:
        """The numbers of the events that opened what is still open."""
        return {each.event.n for each in self._fold.open}

    def matches(self) -> bool:
        """Whether the run matches the query, as in a search of all runs."""
        if self._wanted is None or self._index is None:
            return True
        if tests_events(self._wanted):
            self._index.tell({self._ref.run: self._fold.status})
        return self._index.matching(self._wanted) > 0

    async def read(self, log: LogReader, n: int) -> None:
        """Read the run at least up to an event; do nothing if the run has been purged.

        :raises NoAnswer: if the log does not answer, or the answering replica does not have the event yet
        """
        after = 0
        while page := await log.read(self._ref, after, PAGE_EVENTS, PAGE_BYTES):
            after = page[-1].sequence
            await self._take(log, page)
        if self._last < n and await log.last(self._ref) is not None:
            raise NoAnswer(f"event {n} of run {self._ref.run} has not arrived yet")

    async def _take(self, log: LogReader, page: Sequence[Recorded]) -> None:
        """Take a page; the large values are loaded one event at a time."""
        together: list[Recorded] = []
        for item in page:
            event = await self._looked_into(log, item)
            together.append(replace(item, event=event))
            if event is not item.event:
                await self._take_together(together)
                together = []
        await self._take_together(together)

    async def _looked_into(self, log: LogReader, item: Recorded) -> Event:
        # Queries may look into the large values of these events; few have any.
        if self._index is not None and item.event.type.startswith("run."):
            return await whole(log, item)
        return await told_by(log, item)

    async def _take_together(self, items: Sequence[Recorded]) -> None:
        # In a thread: the event loop is shared, and a run may have many events.
        if items:
            await to_thread.run_sync(partial(self._take_all, items))

    def _take_all(self, items: Sequence[Recorded]) -> None:
        self._last = max(self._last, items[-1].event.n)
        counted = [item for item in items if item.readable and (self._until is None or item.event.time <= self._until)]
        for item in counted:
            payload = known_payload(item.event)
            if payload is not None:
                self._fold.apply(item.event, payload)
        # The events that a fork shares with its origin are not part of its row.
        taken = [IndexedEvent(item.sequence, item.event) for item in counted if item.ref == self._ref]
        if self._index is not None and taken:
            self._index.take(taken, taken[-1].sequence)


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
            seen = ObservedRun(item.ref, question(self._rule.where) if self._rule.where else None, until)
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
            case ev.RunEnd(status=status, error=error, successor=None) if status in wants:
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


class Foreseen(Struct, frozen=True):
    """A notice, and when the rule would have sent it or would send it if nothing changes until then."""

    at: dt.datetime
    notice: Notice


async def preview_notices(
    log: JetStreamLog, rules: Mapping[str, NotifyRule], since: dt.datetime, *, http_url: str | None = None
) -> list[Foreseen]:
    """Return the notices of rules about the events since a time, in the order in which they would have been sent.

    :raises NoAnswer: if the log does not answer
    """
    found: list[Foreseen] = []
    for name, rule in rules.items():
        judge = Judge(log, name, rule, http_url)
        async with aclosing(_cold_events(log, rule, since)) as cold:
            async for item in cold:
                if (one := await _foresee_event(judge, rule, item)) is not None:
                    found.append(one)
        for filter in filters(rule, log.subjects):
            async with aclosing(log.copy_messages(filter, since)) as events:
                async for message in events:
                    if (one := await _foresee(log, judge, rule, message)) is not None:
                        found.append(one)
    return sorted(found, key=lambda one: (one.at, one.notice.rule))


async def _foresee(log: JetStreamLog, judge: Judge, rule: NotifyRule, message: Copied) -> Foreseen | None:
    if (tenant := log.subjects.tenant_of_rejection(message.subject)) is not None:
        refusal = judge.judge_refusal(tenant, message.sequence, message.time, message.data)
        return Foreseen(message.time, refusal) if refusal is not None else None
    try:
        ref = log.subjects.parse_event(message.subject).ref
    except ValueError:
        return None  # published by another program, not an event of a run
    return await _foresee_event(judge, rule, decode_recorded(message.subject, message.sequence, ref, "", message.data))


async def _cold_events(log: JetStreamLog, rule: NotifyRule, since: dt.datetime) -> AsyncGenerator[Recorded]:
    """Yield the events since a time that a rule needs and that are only in cold storage."""
    types = {one for on in rule.on for one in _EVENTS[on]} - {ev.RunEnd.type}  # The stream has the end of each run.
    if not types:
        return
    # A run was moved after its last event, so segments that were marked earlier have no such events.
    async with aclosing(cold_runs(log, rule.tenant, since)) as runs:
        async for ref, end in runs:
            hot = await log.next_message(log.subjects.run(ref), 1)
            if hot is None or hot.sequence != end:
                continue  # It has been purged, or moved back to the stream.
            for item in await log.without_keys().cold_events(ref, end) or ():
                if item.event.type in types and item.event.time >= since and item.sequence < end:
                    yield item


async def _foresee_event(judge: Judge, rule: NotifyRule, item: Recorded) -> Foreseen | None:
    if not item.readable:
        return None
    due = item.event.time + dt.timedelta(seconds=rule.wait_s)
    # Judge the state at the time when the rule would look, or the current one if that is still to come.
    told = await judge.judge(item, due, until=due)
    return Foreseen(due, told) if told is not None and not isinstance(told, Later) else None
