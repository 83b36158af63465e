"""The schedules of a tenant: add, pause, resume, remove and list them.

The rejection of a scheduled start has no caller to go to, so the caller that adds the schedule is warned beforehand if
no running worker can start its runs. Running workers publish heartbeats on a plain subject
(`callboard.runtime.cluster.membership`).
"""

import datetime as dt
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.bus.log.port import AppendRefused
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import find_newest_run, purge_mark
from callboard.bus.nats.requests import NO_RESPONDERS
from callboard.bus.subjects import RunRef
from callboard.features.schedules import timetable
from callboard.features.schedules.schedule import Schedule, Tick, check
from callboard.features.schedules.store import ScheduleStore, StoredSchedule
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.lib.json_errors import JSON_ERRORS
from callboard.projections.projection import known_payload
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.first_events import last_of_each_kind
from callboard.runtime.admission.refusals import refusal_of_start
from callboard.runtime.admission.registration import HASH_DIGITS_SHOWN
from callboard.runtime.admission.start_message import examine_object
from callboard.runtime.admission.versions import find_registration
from callboard.runtime.cluster.membership import BEAT_S, Beat
from callboard.runtime.run.bundles import with_registered

ROOM_BYTES = 16 * 1024
"""Bytes that a schedule leaves free below the server's largest message, for headers and members added to its starts."""

REJECTED = "rejected"
PENDING = "pending"
"""The status of a last run whose start no worker has admitted or rejected yet."""

PURGED = "purged"


class ScheduleUnknown(CallboardError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        remedy = "List the schedules with `callboard schedule list`."
        super().__init__("schedule.unknown", f"unknown schedule: {name!r}", remedy=remedy)


class ScheduleChanged(CallboardError):
    """Another caller has changed the schedule at the same moment."""

    def __init__(self, name: str) -> None:
        message = f"schedule {name!r} was changed by another caller at the same time"
        super().__init__("schedule.changed", message, remedy="Check the schedule, and try again.")


class ScheduleRow(Struct, frozen=True, omit_defaults=True):
    """A schedule as shown to callers: ``next`` is its next due time, ``last`` the run that it started last.

    ``waiting`` is a due time that has passed, whose run starts when the previous one has ended.

    ``last_status`` and ``last_problems`` are the status of that run, and why its start was rejected. ``skipped`` is how
    many due times in a row, up to the last, were skipped because a previous run had not ended. ``warnings`` are for the
    caller that adds the schedule.
    """

    name: str
    when: str
    definition: str
    overlap: str
    catch_up: int
    paused: bool = False
    next: dt.datetime | None = None
    waiting: dt.datetime | None = None
    last: str = ""
    last_status: str = ""
    last_problems: list[Problem] = []
    skipped: int = 0
    warnings: list[Problem] = []


class _Planned(Struct, frozen=True):
    """What is known of a start that is due later: the name of its definition, warnings, whether it needs a model."""

    name: str
    warnings: list[Problem] = []
    needs_model: bool = False


class Schedules:
    """The schedules of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, *, now: Callable[[], dt.datetime] | None = None) -> None:
        self._log = log
        self._tenant = tenant
        self._store = ScheduleStore(log)
        self._now = now or log.now

    async def add(self, wanted: Schedule, definitions: Definitions) -> ScheduleRow | list[Problem]:
        """Store a schedule, replacing one of the same name, or return its problems.

        :raises ScheduleChanged: if another caller does the same at once
        :raises Full: if the store is full
        :raises NoAnswer: if the stream does not answer
        """
        problems = [*check(wanted), *timetable.problems(wanted.when)]
        problems = problems or self._too_large(wanted)
        planned = problems or await self._plan_start(wanted, definitions)
        if isinstance(planned, list):
            return planned
        before = await self._store.get(self._tenant, wanted.name)
        kept = await self._put(_change_schedule(wanted, definition=planned.name), before)
        needs_model = planned.needs_model and not wanted.start.get("model")
        warnings = [*planned.warnings, *await prospects(self._log, needs_model=needs_model)]
        return msgspec.structs.replace(kept, warnings=last_of_each_kind(warnings))

    async def pause(self, name: str) -> ScheduleRow:
        """Suspend the schedule until it is resumed. Raises as `remove`."""
        before = await self._require_schedule(name)
        return await self._put(_change_schedule(before.schedule, paused=True), before)

    async def resume(self, name: str) -> ScheduleRow:
        """Resume a paused schedule at its next due time, without catching up on earlier ones. Raises as `remove`."""
        before = await self._require_schedule(name)
        return await self._put(_change_schedule(before.schedule, paused=False), before)

    async def remove(self, name: str) -> None:
        """End a schedule; its runs stay.

        :raises ScheduleUnknown: if no schedule has this name
        :raises ScheduleChanged: if another caller changes it at once
        :raises Full: if the store is full
        :raises NoAnswer: if the stream does not answer
        """
        before = await self._require_schedule(name)
        await self._put(_change_schedule(before.schedule, removed=True), before)

    async def rows(self) -> list[ScheduleRow]:
        """Return all schedules, by name.

        :raises NoAnswer: if the stream does not answer
        """
        kept = [await self._store.get(self._tenant, name) for name in await self._store.names(self._tenant)]
        return [await self._row(one) for one in kept if one is not None and not one.schedule.removed]

    async def row(self, name: str) -> ScheduleRow:
        """Return one schedule.

        :raises ScheduleUnknown: if no schedule has this name
        :raises NoAnswer: if the stream does not answer
        """
        return await self._row(await self._require_schedule(name))

    async def _require_schedule(self, name: str) -> StoredSchedule:
        try:
            found = await self._store.get(self._tenant, name)
        except ValueError:
            found = None  # the name is not valid in a subject
        if found is None or found.schedule.removed:
            raise ScheduleUnknown(name)
        return found

    async def _put(self, schedule: Schedule, before: StoredSchedule | None) -> ScheduleRow:
        tick = None
        if before is not None:
            last = before.tick.last if before.tick is not None else before.schedule.last
            schedule = msgspec.structs.replace(schedule, last=last)
        if not schedule.paused and not schedule.removed:
            tick = Tick(schedule.version, schedule.when.after(self._now()), schedule.last)
        after = before.sequence if before is not None else 0
        try:
            await self._store.put(self._tenant, schedule, after, tick)
        except AppendRefused:
            raise ScheduleChanged(schedule.name) from None
        return await self._row(StoredSchedule(schedule, 0, tick))

    async def _row(self, kept: StoredSchedule) -> ScheduleRow:
        schedule, tick = kept.schedule, kept.tick
        standing = not schedule.paused and not schedule.removed
        waiting = tick.due if standing and tick is not None and tick.queued else None
        due = tick.due if tick is not None and waiting is None else schedule.when.after(self._now())
        last = tick.last if tick is not None else schedule.last
        status, problems = await self._outcome(last) if last else ("", [])
        return ScheduleRow(
            schedule.name,
            schedule.when.text(),
            schedule.definition,
            schedule.overlap,
            schedule.catch_up,
            schedule.paused,
            due if standing else None,
            waiting,
            last,
            status,
            problems,
            tick.skipped if tick is not None else 0,
        )

    async def _outcome(self, run: str) -> tuple[str, list[Problem]]:
        """Return the status of a run, and the problems for which its start was rejected."""
        ref, found = await find_newest_run(self._log, RunRef(self._tenant, run))
        if found is None:
            if (refused := await refusal_of_start(self._log, ref)) is not None:
                return REJECTED, refused.problems
            return (PURGED if await purge_mark(self._log, ref) is not None else PENDING), []
        payload = known_payload(found.event) if found.readable else None
        match payload:
            case ev.RunEnd():
                return payload.status, []
            case ev.RunQuarantined():
                return "quarantined", []
            case ev.RunDiverged():
                return payload.status, []
            case _:
                return "running", []

    def _too_large(self, wanted: Schedule) -> list[Problem]:
        size, largest = len(msgspec.json.encode(wanted)), self._log.nc.max_payload - ROOM_BYTES
        if size <= largest:
            return []
        message = f"the schedule with its start message has {size} bytes"
        expected = f"at most {largest} bytes; register the definition (`callboard push`), and schedule it by name"
        return [Problem("schedule.too_large", message, "start", expected=expected)]

    async def _plan_start(self, wanted: Schedule, definitions: Definitions) -> _Planned | list[Problem]:
        """Plan the start at the next due time; return what is known of it, or its problems."""
        if "run_id" in wanted.start:
            message = "the ids of scheduled runs are derived from the schedule's name and the due time"
            return [Problem("schedule.run_id", message, "start.run_id", expected="a start without a run_id")]
        message = wanted.start_of(wanted.when.after(self._now()))
        size = len(msgspec.json.encode(message))
        examined = await definitions.offload(partial(examine_object, message, size), size=size)
        if examined.start is None or examined.problems:
            return examined.problems
        start, source = examined.start, examined.start.definition
        if source.source is None:
            found = await self._find_registered(start)
            if isinstance(found, list):
                return found
            start, source = found
        plan = await definitions.offload(partial(definitions.plan, source, start), size=size, source=source.source)
        if not isinstance(plan, list):
            name = plan.definition.name or plan.definition.hash[:HASH_DIGITS_SHOWN]
            return _Planned(name, [*plan.definition.warnings, *plan.warnings], plan.needs.model)
        if source.name and all(problem.code == CODE_UNKNOWN for problem in plan):
            # Workers have the code, and this process does not: a worker checks the start when it is due.
            return _Planned(source.name)
        return plan

    async def _find_registered(self, start: StartRun) -> tuple[StartRun, DefinitionSource] | list[Problem]:
        wanted = start.definition
        name = wanted.name or wanted.hash or ""
        kept = await find_registration(self._log, self._tenant, name)
        if kept is None:
            message = f"no definition {name!r} is registered"
            expected = "the name, NAME@VERSION or hash of a registered definition (`callboard push` registers one)"
            return [Problem("definition.unknown", message, "start.definition", expected=expected)]
        language = wanted.language or kept.language
        return with_registered(start, kept), DefinitionSource(language, kept.source, name=kept.name)


def _change_schedule(schedule: Schedule, **members: Any) -> Schedule:
    return msgspec.structs.replace(schedule, version=uuid4().hex, **members)


HEARING_S = BEAT_S + 0.5
"""Every running worker publishes a heartbeat within this time."""


async def prospects(log: JetStreamLog, *, needs_model: bool) -> list[Problem]:
    """Return warnings about starts that no running worker can perform; with ``needs_model``, they need a default model.

    It returns as soon as a suitable worker has been heard.
    """
    heard: dict[str, Beat] = {}
    enough = anyio.Event()

    async def take(message: Msg) -> None:
        if message.headers is not None and message.headers.get("Status") == NO_RESPONDERS:
            enough.set()
            return
        with suppress(*JSON_ERRORS):
            beat = msgspec.json.decode(message.data, type=Beat)
            heard[beat.worker] = beat
            if not warnings_of([beat], needs_model=needs_model):
                enough.set()

    inbox = log.nc.new_inbox()
    answers = await log.nc.subscribe(inbox, cb=take)
    try:
        # The server reports if no worker is subscribed. A "bye" of an unknown worker has no effect.
        await log.nc.publish(log.subjects.beat(), msgspec.json.encode(Beat("", "bye")), reply=inbox)
        # Subscribed only now: otherwise this subscription would hide that no worker is subscribed.
        beats = await log.nc.subscribe(log.subjects.beat(), cb=take)
        try:
            with anyio.move_on_after(HEARING_S):
                await enough.wait()
        finally:
            await beats.unsubscribe()
    finally:
        await answers.unsubscribe()
    return warnings_of(heard.values(), needs_model=needs_model)


def warnings_of(heard: Iterable[Beat], *, needs_model: bool) -> list[Problem]:
    """Return the warnings that follow from the heartbeats of workers."""
    # A guest performs no schedules.
    loads = [one.load for one in heard if one.load is not None and not one.guest and one.word in ("hello", "here")]
    if not loads:
        message = "no worker is running: no run starts until one is"
        expected = "a running worker (`callboard up` or `callboard worker`)"
        return [Problem("schedule.no_worker", message, expected=expected, severity="warning")]
    if needs_model and not any(load.has_model for load in loads):
        message = "the start names no model, and no running worker has a default: each start will be rejected"
        expected = "--model with the schedule, or CALLBOARD_MODEL or ANTHROPIC_API_KEY in the workers' environment"
        return [Problem("schedule.no_model", message, "model", expected=expected, severity="warning")]
    return []
