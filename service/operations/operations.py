"""The operations of the service. Each takes a request and returns the answer; `requests` has the types of both.

An operation raises `ApiError` for a request that is refused, and for an object that is unknown or does not exist yet.
"""

import datetime as dt
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, cast, get_args

import anyio
import msgspec
from msgspec import Raw

from callboard.actors.partial_answers import PartialAnswer
from callboard.bus import events as ev
from callboard.bus.commands import Registration, StartRun
from callboard.bus.errors import LogNewer, LogUnreadable
from callboard.bus.events import Problem
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.blobs import BlobTooLarge
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import find_newest_run, purge_mark
from callboard.bus.subjects import RunRef
from callboard.features.index.queries import Column, Order
from callboard.features.schedules.schedule import Schedule
from callboard.features.schedules.schedules import ScheduleChanged, ScheduleRow, Schedules, ScheduleUnknown
from callboard.lib.text import encode_json
from callboard.projections.lists.runs import STATUSES
from callboard.projections.lists.where import Both, Either, Term, Where, WhereInvalid, unsearchable, where
from callboard.projections.results import view_of
from callboard.projections.run.run_result import Results, RunResult
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Trace
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.refusals import refusal_of_start
from callboard.runtime.admission.registration import Registered, register, to_registered
from callboard.runtime.admission.tells import check_tell
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.admission.versions import (
    NoEarlierVersion,
    RegisteredMeanwhile,
    UnknownDefinition,
    UnknownVersion,
    find_registration,
    rollback,
    versions,
)
from callboard.runtime.client.answers import partial_answer
from callboard.runtime.client.client import VERDICT_WAIT_S, Client, unknown_run
from callboard.runtime.run.reactions import parse_tell
from callboard.service.operations.folding import Folding
from callboard.service.operations.fork_starts import ForkRun, begin_fork
from callboard.service.operations.operation import ApiError, OperationProvider
from callboard.service.operations.requests import (
    AddSchedule,
    AwaitResult,
    ChangeSchedule,
    ClosedQuestionList,
    CostList,
    Count,
    CountRuns,
    ListQuestions,
    ListRuns,
    ListValues,
    Nothing,
    OneCall,
    OneName,
    OneRun,
    Page,
    PageOfEvents,
    QuestionList,
    Result,
    Rollback,
    RunList,
    SequencedEvent,
    SumCosts,
    TellRun,
    Told,
    ValueList,
    Versions,
)
from callboard.service.operations.retry_point import NowhereToFork
from callboard.service.operations.run_lists import Listings, list_versions
from callboard.service.operations.settlement import NotTaken, tell_and_wait
from callboard.service.operations.values import ENCRYPTED_BYTES_MAX, ReadValue, ValuePart, part_of_value

EVENTS_MAX = 1_000
"""Events in one page."""

PAGE_BYTES_MAX = 512 * 1024
"""A page ends before the event that would make it larger than this; it has at least one event."""

RUNS_MAX = 1_000
VALUES_MAX = 1_000
"""Runs in one answer."""

QUESTIONS_MAX = 1_000
"""Questions in one answer."""

WAIT_MAX_S = 300.0
"""Longest wait for a result."""

Instant = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Operations(OperationProvider):
    """The operations of the service, over one log."""

    def __init__(
        self, log: JetStreamLog, definitions: Definitions, listings: Listings, verdict_wait_s: float = VERDICT_WAIT_S
    ) -> None:
        self._log = log
        self._definitions = definitions
        self._listings = listings
        self._verdict_wait_s = verdict_wait_s
        self._folding = Folding()

    # -- saying -------------------------------------------------------------------------------------------------------

    async def start(self, tenant: str, message: Annotated[dict[str, Any], StartRun]) -> Verdict:
        """Start a run, and answer with the verdict. The request is a start message, as for ``cb.start.<tenant>``."""
        return _require_accepted("start", await self._client(tenant).start(message, wait_s=self._verdict_wait_s))

    async def fork(self, tenant: str, request: ForkRun) -> Verdict:
        """Start a new run that continues from a place in another run, or start that run once more. The answer is the
        verdict of the start."""
        client = self._client(tenant)
        # The events are not needed if the request gives the place as the number of an event.
        events = [] if request.at is not None else await client.events(request.run_id)
        try:
            verdict = await begin_fork(client, request, events, wait_s=self._verdict_wait_s)
        except NowhereToFork as error:
            raise ApiError(409, error.code, error.message, run_id=request.run_id, remedy=error.remedy) from error
        return _require_accepted("start", verdict)

    async def tell(self, tenant: str, request: TellRun) -> Told:
        """Send a command to a run (cancel, kill, pause, resume, answer, signal), and answer with its effect."""
        body = encode_json(request.body)
        if problems := check_tell(request.verb, body):
            raise _refusal(request.verb, request.run_id, problems)
        tell = parse_tell(request.verb, body)
        wait_s = min(request.wait_s, WAIT_MAX_S)
        try:
            found = await tell_and_wait(
                self._client(tenant), request.run_id, request.verb, tell, wait_s, verdict_wait_s=self._verdict_wait_s
            )
        except NotTaken as error:
            raise ApiError(409, error.code, error.message, run_id=request.run_id) from error
        verdict = _require_accepted(request.verb, found.verdict)
        recorded = found.recorded.n if found.recorded is not None else None
        return Told(
            verdict.status,
            request.run_id,
            verdict.cause,
            "accepted" if found.settled else "pending",
            recorded,
            verdict.duplicate,
            verdict.warnings,
        )

    async def definition(self, tenant: str, request: Registration) -> Registered:
        """Register a definition: ``source``, and optionally ``language``, ``name``, files and children. Without
        ``source``, look up a registered definition."""
        if request.source is None:
            return await self._look_up(tenant, request)
        kept = await register(self._log, self._definitions, tenant, request)
        if isinstance(kept, list):
            raise ApiError(400, "definition.refused", "the definition is not valid", kept)
        return kept

    async def _look_up(self, tenant: str, wanted: Registration) -> Registered:
        key = wanted.hash or wanted.name
        if not key:
            message = "source is missing: to look up a registered definition instead, give its hash or name"
            raise ApiError(400, "api.malformed", message)
        found = await find_registration(self._log, tenant, key)
        if found is None:
            raise ApiError(404, "definition.unknown", f"no definition {key!r} is registered")
        return to_registered(found)

    async def rollback(self, tenant: str, request: Rollback) -> Registered:
        """Make a name refer to an earlier version again, by registering that version once more."""
        try:
            return await rollback(self._log, tenant, request.name, request.to, request.by)
        except (UnknownDefinition, UnknownVersion) as error:
            raise ApiError(404, error.code, error.message, remedy=error.remedy) from error
        except (NoEarlierVersion, RegisteredMeanwhile) as error:
            raise ApiError(409, error.code, error.message, remedy=error.remedy) from error

    async def versions(self, tenant: str, request: OneName) -> Versions:
        """List all versions that were registered under a name, newest first. The newest is in force."""
        found = await versions(self._log, tenant, request.name)
        if not found:
            unknown = UnknownDefinition(request.name)
            raise ApiError(404, unknown.code, unknown.message, remedy=unknown.remedy)
        return Versions(request.name, list_versions(found, await self._listings.versions(tenant)))

    # -- schedules ----------------------------------------------------------------------------------------------------

    async def schedule(self, tenant: str, request: AddSchedule) -> ScheduleRow:
        """Add a schedule, or replace the one with the same name."""
        wanted = Schedule(
            request.name,
            request.when,
            request.start,
            due_field=request.due_field,
            catch_up=request.catch_up,
            overlap=request.overlap,
        )
        try:
            added = await Schedules(self._log, tenant).add(wanted, self._definitions)
        except ScheduleChanged as error:
            raise ApiError(409, error.code, error.message, remedy=error.remedy) from error
        if isinstance(added, list):
            raise ApiError(400, "schedule.refused", "the schedule is refused", added)
        return added

    async def schedules(self, tenant: str, _request: Nothing) -> list[ScheduleRow]:
        """List the schedules in order of their names."""
        return await Schedules(self._log, tenant).rows()

    async def change_schedule(self, tenant: str, request: ChangeSchedule) -> ScheduleRow | None:
        """Pause, resume or remove a schedule."""
        schedules = Schedules(self._log, tenant)
        change = {"pause": schedules.pause, "resume": schedules.resume, "remove": schedules.remove}[request.change]
        try:
            return await change(request.name)
        except ScheduleUnknown as error:
            raise ApiError(404, error.code, error.message, remedy=error.remedy) from error
        except ScheduleChanged as error:
            raise ApiError(409, error.code, error.message, remedy=error.remedy) from error

    # -- reading ------------------------------------------------------------------------------------------------------

    async def runs(self, tenant: str, request: ListRuns) -> RunList:
        """List runs, newest first or in another order."""
        limit = _check_range("limit", request.limit, RUNS_MAX)
        order = _parse_order(request.order)
        try:
            return RunList(*await self._listings.page(tenant, _parse_conditions(request), limit, request.before, order))
        except KeyError:
            message = f"the list has no run {request.before!r}"
            raise ApiError(404, "run.unknown", message, where="before") from None

    async def count(self, tenant: str, request: CountRuns) -> Count:
        """Return the number of all runs that match; `runs` lists them in pages."""
        return Count(await self._listings.matching(tenant, _parse_conditions(request)))

    async def run_values(self, tenant: str, request: ListValues) -> ValueList:
        """List the values of a property that runs have, those of the most runs first."""
        limit = _check_range("limit", request.limit, VALUES_MAX)
        return ValueList(await self._listings.values(tenant, request.of, limit))

    async def costs(self, tenant: str, request: SumCosts) -> CostList:
        """Sum up the costs of ended runs, including their child runs, by definition, day, model or tag."""
        return CostList(await self._listings.costs(tenant, _parse_where(request.where), request.by))

    async def questions(self, tenant: str, request: ListQuestions) -> QuestionList:
        """List the open questions of all runs, oldest first."""
        limit = _check_range("limit", request.limit, QUESTIONS_MAX)
        found = [
            one
            for one in await self._listings.questions(tenant)
            if request.definition in (None, one.definition) and request.run_id in (None, one.run)
        ]
        return QuestionList(found[:limit], len(found) > limit, len(found))

    async def closed_questions(self, tenant: str, request: ListQuestions) -> ClosedQuestionList:
        """List the questions that were closed last in all runs, with their answers, the last one first."""
        limit = _check_range("limit", request.limit, QUESTIONS_MAX)
        found = [
            one
            for one in await self._listings.closed_questions(tenant)
            if request.definition in (None, one.definition) and request.run_id in (None, one.run)
        ]
        return ClosedQuestionList(found[:limit], len(found) > limit)

    async def show(self, tenant: str, request: OneRun) -> RunResult:
        """Return the state of a run: status, nodes, open questions and timers, output, usage."""
        events = await self._client(tenant).events(request.run_id)
        return await self._folding.fold(Results(self._listings.prices), events)

    async def trace(self, tenant: str, request: OneRun) -> Trace:
        """Return a run's tree of nodes and effects, with times."""
        events = await self._client(tenant).events(request.run_id)
        return await self._folding.fold(TraceFold(self._listings.prices), events)

    async def state(self, tenant: str, request: OneRun) -> Any:
        """Return the state document of a run, in the format of its language: another run can continue from it."""
        events = await self._client(tenant).events(request.run_id)
        accepted = ev.payload_of(events[0])
        language = accepted.definition.language if isinstance(accepted, ev.RunAccepted) else ""
        view = view_of(language)
        if view is None or view.state is None:
            message = f"runs of the language {language} have no state document"
            raise ApiError(400, "state.none", message, run_id=request.run_id)
        return await self._folding.fold(view.state(), events)

    async def result(self, tenant: str, request: AwaitResult) -> Result:
        """Return the end of a run, or of the run that continues it. With ``wait_s``, wait for it."""
        ref = RunRef(tenant, request.run_id)
        if await self._log.last(ref) is None:
            raise await unknown_run(self._log, ref)
        ref, last = await find_newest_run(self._log, ref)
        if request.wait_s > 0 and (last is None or last.event.type not in ev.AT_REST):
            with anyio.move_on_after(min(request.wait_s, WAIT_MAX_S)):
                ref, last = await self._wait_for_end(ref)
        if last is None and (
            await refusal_of_start(self._log, ref) is not None or await purge_mark(self._log, ref) is not None
        ):
            raise await unknown_run(self._log, ref)
        if last is not None and last.event.type == ev.RunQuarantined.type:
            raise ApiError(409, LogUnreadable.CODE, "the run's log cannot be read; `kill` ends it", run_id=ref.run)
        if last is None or ev.recorded_type(last.event) != ev.RunEnd.type:
            message = (
                f"the run has not ended within {request.wait_s:g} s" if request.wait_s else "the run has not ended"
            )
            raise ApiError(409, "run.not_ended", message, run_id=ref.run)
        event = await whole(self._log, last)
        end = ev.payload_of(event) if event.type in (ev.RunEnd.type, ev.NEWER) else None
        if isinstance(end, ev.Newer):
            message = f"only a newer version of Callboard knows the end of the run: {end.reason}"
            raise ApiError(409, LogNewer.CODE, message, run_id=ref.run)
        if not isinstance(end, ev.RunEnd):
            raise ApiError(409, LogUnreadable.CODE, "the end of the run cannot be read", run_id=ref.run)
        return Result(
            run_id=ref.run,
            status=end.status,
            output=end.output,
            results=end.results,
            error=end.error,
            usage=end.usage,
        )

    async def _wait_for_end(self, ref: RunRef) -> tuple[RunRef, Recorded | None]:
        """Wait for the end of a run and of those that continue it; return the last one and its end."""
        while True:
            filter = self._log.subjects.events(ref.tenant, ref.run, event_type=ev.RunEnd.type)
            async with self._log.follow(filter, 0) as feed:
                await anext(feed)
            ref, last = await find_newest_run(self._log, ref)
            if last is not None and last.event.type in ev.AT_REST:
                return ref, last

    async def events(self, tenant: str, request: PageOfEvents) -> Page:
        """Return a page of a run's events."""
        limit = _check_range("limit", request.limit, EVENTS_MAX)
        ref = RunRef(tenant, request.run_id)
        page: list[SequencedEvent] = []
        after, size = request.after, 0
        async for recorded in self._read_batches(ref, request.after, limit + 1):
            if not request.types or recorded.event.type in request.types:
                size += len(told := recorded.public_form)
                if len(page) == limit or (page and size > PAGE_BYTES_MAX):
                    return Page(page, after, more=True)
                page.append(SequencedEvent(recorded.sequence, Raw(told)))
            after = recorded.sequence
        if after == request.after and await self._log.last(ref) is None:
            raise await unknown_run(self._log, ref)
        return Page(page, after, more=False)

    async def _read_batches(self, ref: RunRef, after: int, at_once: int) -> AsyncGenerator[Recorded]:
        """Yield a run's events after a stream sequence. Reads them in batches, since most of a long log is not on this
        page."""
        while found := await self._log.read(ref, after, at_once):
            for recorded in found:
                yield recorded
            if len(found) < at_once:
                return
            after = found[-1].sequence

    async def partial_answer(self, tenant: str, request: OneCall) -> PartialAnswer | None:
        """Return what a model has said so far in a call that has no result yet, or null if no worker has it. Pieces
        that follow are published on ``cb.live``."""
        return await partial_answer(self._log, RunRef(tenant, request.run_id), request.n)

    async def value(self, tenant: str, request: ReadValue) -> ValuePart:
        """Return a part of a large value of a run. An event contains the value's sha256."""
        try:
            found = await part_of_value(self._log, RunRef(tenant, request.run_id), request)
        except BlobTooLarge:
            message = f"the value is encrypted and has more than {ENCRYPTED_BYTES_MAX} bytes"
            raise ApiError(413, "api.too_large", message, run_id=request.run_id) from None
        if found is None:
            message = "the run has no large value with this sha256, or the value ends before this piece"
            raise ApiError(404, "value.unknown", message, run_id=request.run_id)
        return found

    def _client(self, tenant: str) -> Client:
        return Client(self._log, tenant)


def _parse_conditions(request: CountRuns) -> Where:
    """Return the condition for the runs that a request selects.

    :raises ApiError: if the request has an invalid condition
    """
    since = _parse_since(request.since)
    if request.status is not None and request.status not in STATUSES:
        # No run has this status. That is not an error: a newer client may know more statuses.
        return Either(())
    for name, given in (("q", request.q), ("definition", request.definition or "")):
        if unsearchable(given) is not None:
            message = f"{name} has a character that cannot be searched for"
            raise ApiError(400, "find.where", message, where=name, expected="printable characters")
    tests = [
        Term("status", "=", request.status) if request.status is not None else None,
        Term("definition", "=", request.definition) if request.definition is not None else None,
        Term("accepted", ">=", since.timestamp()) if since is not None else None,
        Term("any", "~", request.q) if request.q.strip() else None,
    ]
    return Both((*(test for test in tests if test is not None), _parse_where(request.where)))


def _parse_order(text: str) -> Order:
    """Read the order of a list: a column, with ``-`` before it if the greatest is first.

    :raises ApiError: if the column does not exist
    """
    name = text.removeprefix("-")
    if name in ("", "accepted"):
        return Order(None, descending=text != "accepted")
    if name not in get_args(Column):
        expected = f"{', '.join(('accepted', *get_args(Column)))}, each also with - before it"
        raise ApiError(400, "api.malformed", f"unknown order: {text[:80]!r}", where="order", expected=expected)
    return Order(cast("Column", name), descending=text.startswith("-"))


def _parse_where(text: str) -> Where:
    try:
        return where(text, STATUSES, dt.datetime.now(dt.UTC))
    except WhereInvalid as error:
        raise ApiError(400, error.code, error.message, where=error.where, column=error.column) from error


def _parse_since(text: str | None) -> dt.datetime | None:
    """Parse an instant, or a number of seconds before now."""
    if text is None:
        return None
    try:
        if text.isdecimal():
            return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=int(text))
        return msgspec.convert(text, Instant)
    except (msgspec.ValidationError, OverflowError):
        expected = "an instant like 2026-11-20T09:00:00Z, or a number of seconds before now"
        raise ApiError(400, "api.malformed", f"invalid since: {text[:80]!r}", expected=expected) from None


def _check_range(name: Literal["limit"], value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise ApiError(400, "api.malformed", f"invalid {name}: {value}", expected=f"1 to {most}")
    return value


def _require_accepted(verb: str, verdict: Verdict) -> Verdict:
    if verdict.status != "accepted":
        raise _refusal(verb, verdict.run_id, verdict.problems)
    return verdict


def _refusal(verb: str, run_id: str | None, problems: list[Problem]) -> ApiError:
    status = 404 if any(problem.code == "run.unknown" for problem in problems) else 400
    more = {"run_id": run_id} if run_id else {}
    return ApiError(
        status, f"{'start' if verb == 'start' else 'tell'}.refused", f"the {verb} is refused", problems, **more
    )
