"""Starts: each is checked, and its run stored and activated, or it is refused with all problems.

Every step may be repeated after a crash: the run's first event is guarded, and the command that activates a run does
nothing to one that has begun.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import anyio
import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus import tracecontext
from callboard.bus.commands import WORKER_HEADER, StartRun, Wake
from callboard.bus.errors import LogUnreadable, RunLost
from callboard.bus.events import Problem, encode_event
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import FirstCommand, Purged, Recorded, Shares, unreadable, whole
from callboard.bus.log.private_logging import omit_content
from callboard.bus.log.successors import Stop
from callboard.bus.nats.erasure import erase
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import Gone, purge_again, purge_mark
from callboard.bus.nats.queue import Delivery
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.bus.outgoing_subjects import OutgoingPolicy
from callboard.bus.run_ids import derived_run_id, named_run_id
from callboard.bus.subjects import TOKEN_BYTES_MAX, RunRef, is_name, token
from callboard.bus.tracecontext import TraceContext
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.languages.language import STRICT, Plan
from callboard.projections.run.span_ids import SpanIds, effect_address
from callboard.runtime.admission.chains import find_stop
from callboard.runtime.admission.child_continuation import concerns_only_fork, restart_warning, start_attempts
from callboard.runtime.admission.command_routing import pass_on_stop, route
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.first_events import accepted_event, definition_token, last_of_each_kind
from callboard.runtime.admission.fork_places import unknown_origin_problem
from callboard.runtime.admission.forks import Forks
from callboard.runtime.admission.large_starts import BLOBS, START_BYTES_MAX, insert_parts
from callboard.runtime.admission.refusals import record_refusal, refusal_of_start
from callboard.runtime.admission.secret_starts import erase_start, find_admitted, is_secret, key_of, withhold_texts
from callboard.runtime.admission.start_message import CONTINUES, Examined, Inherited, decode_start, examine_object
from callboard.runtime.admission.start_plans import CodeElsewhere, CodeHosts, StartPlans
from callboard.runtime.admission.successors import complete_successor, parent_of
from callboard.runtime.admission.tells import illegible_problem
from callboard.runtime.admission.verdicts import Verdict, fit_message
from callboard.runtime.budgets.allowances import Allowances
from callboard.runtime.run.log import RunLog, utc_now
from callboard.runtime.run.new_run import NewRun

PURGED = "run.purged"

_RESTING = (*ev.AT_REST, ev.RunParked.type, ev.RunDiverged.type)
"""Events after which a run is not performed until a new event or command activates it."""

GATHERED_AT_ONCE = 2
"""Maximum number of starts with large values that are held in memory at the same time before they are admitted."""

AT_ONCE_S = 1.0
"""Maximum age of a start that is stored together with its first turn, in seconds. That turn may crash the worker, and
crashes are counted by the claims in the log. The loss of a worker is noticed later than that, so at the next attempt
the run is in the log before its first turn."""


class _Call(Struct, frozen=True):
    """The command that activates an admitted run. ``worker`` is the one that must perform it, empty for any.

    ``at_once`` means that it may be stored in one batch with the run's first turn. If the run continues a chain that
    was stopped, the command that did it (``stop``) activates the run, which then ends before it performs anything.
    """

    message_id: str
    worker: str = ""
    at_once: bool = False
    stop: Stop | None = None


class Performer(Protocol):
    """The worker that admits runs, as far as it can begin to perform them before their commands are routed."""

    def perform_at_once(self, first: Recorded, worker: str) -> None:
        """Perform a run whose first event was just stored, unless it belongs to another worker.

        ``worker`` is the one that must perform the run, empty for any.
        """
        ...

    async def store_and_perform(self, new: NewRun) -> bool:
        """Store a run with its first turn and the command that activates it, and perform it.

        Return whether it is stored. Raises as `NewRun.wait_until_stored`.
        """
        ...


class _Checked(Struct, frozen=True, kw_only=True):
    """A start that may be admitted, unless its run was purged or its fork differs from its origin.

    ``accepted`` is the first event of the run. ``exists`` means that the stream has events of a run with this id.
    """

    start: StartRun
    plan: Plan[Any]
    accepted: ev.RunAccepted
    warnings: list[Problem]
    exists: bool

    @property
    def is_plain(self) -> bool:
        """Whether the run is new, shares no events with another run, and is not encrypted."""
        return not self.exists and self.start.fork is None and not self.start.encryption_key


class Starts:
    """Admits the starts that arrive at one worker, and the child runs of its runs.

    Child runs of a ``guest`` worker stay with it.
    """

    def __init__(
        self,
        log: JetStreamLog,
        *,
        worker: str,
        definitions: Definitions,
        check: Callable[[str, StartRun, Plan[Any] | None], list[Problem]],
        forks: Forks,
        guest: bool = False,
        allowances: Allowances | None = None,
        outgoing: TenantRequests | None = None,
    ) -> None:
        self._allowances = allowances
        self._outgoing = outgoing or TenantRequests(log.nc, OutgoingPolicy(log.subjects.prefix))
        self._home = worker if guest else ""
        self._check = check
        self._forks = forks
        self._log = log
        self._worker = worker
        self._definitions = definitions
        self._plans = StartPlans(log, definitions)
        self._gathering = anyio.CapacityLimiter(GATHERED_AT_ONCE)
        self._performer: Performer | None = None

    def set_worker(self, performer: Performer, hosts: CodeHosts) -> None:
        """Have ``performer`` begin the runs that are admitted here and belong to it.

        ``hosts`` says which worker has the code of a start that this one does not have.
        """
        self._performer = performer
        self._plans.set_hosts(hosts)

    async def admit(self, tenant: str, delivery: Delivery) -> Verdict | None:
        """Admit or refuse a start; None if it continues a run and no worker has its code at the moment.

        The message of a start with an encryption key is erased afterwards, so that only encrypted content remains. The
        message of a start whose run exists already or has been purged is erased too, because a purge would not find it.

        :raises CodeElsewhere: if another worker is to admit it, because it has the code that the start names
        """
        document = decode_start(delivery.data)
        secret = await is_secret(self._log, tenant, delivery.data, document)
        if secret:
            omit_content()
        named = named_run_id(delivery.data)
        ref = RunRef(tenant, named or derived_run_id(self._log.stream, delivery.sequence, delivery.time_ns))
        verdict = await self._decide_start(ref, document, delivery, secret)
        if isinstance(document, dict) and CONTINUES in document and _lacks_code(verdict):
            return None
        if verdict.status == "rejected":
            await record_refusal(self._log, tenant, "start", withhold_texts(verdict) if secret else verdict, delivery)
            await self.wake_parent(ref, document, delivery.sequence)
        if secret or any(problem.code == PURGED for problem in verdict.problems):
            await erase_start(self._log, ref, delivery.sequence, document)
        elif verdict.duplicate:
            await erase(self._log, delivery.sequence)
        return verdict

    async def wake_parent(self, ref: RunRef, document: dict[str, Any] | list[Problem], sequence: int) -> None:
        """Wake the parent that waits for the end of a run whose start was refused, if the run continues a child."""
        parent = await parent_of(self._log, ref.tenant, document) if isinstance(document, dict) else None
        if parent is not None:
            wake = msgspec.json.encode(Wake(parent.key, ref.run))
            await route(self._log, RunRef(ref.tenant, parent.run), "wake", wake, f"refused-{sequence}")

    async def _decide_start(
        self, ref: RunRef, document: dict[str, Any] | list[Problem], delivery: Delivery, secret: bool
    ) -> Verdict:
        # The number of deliveries starts again when a consumer is reset, so the age of the message counts too.
        age = self._log.now() - delivery.stored_time
        at_once = delivery.deliveries == 1 and age.total_seconds() < AT_ONCE_S
        call = _Call(f"start-{delivery.sequence}", delivery.headers.get(WORKER_HEADER, ""), at_once)
        if delivery.deliveries > 1 and (before := await self._find_earlier_verdict(ref, delivery.sequence)) is not None:
            if isinstance(document, dict) and CONTINUES in document:
                completed = await complete_successor(self._log, ref.tenant, document)
                call = call if isinstance(completed, list) else await self._stopped(ref.tenant, completed[1], call)
            return await self._activate(ref, call, before)
        examined = await self._examine(ref.tenant, document, delivery.data)
        if examined.inherited is not None:
            call = await self._stopped(ref.tenant, examined.inherited, call)
        before = await find_admitted(self._log, ref, delivery.sequence, examined.problems) if secret else None
        if before is not None:
            return before if before.duplicate else await self._activate(ref, call, before)
        return await self._admit_run(ref, examined, call, tracecontext.read(delivery.headers), delivery.sequence)

    async def _stopped(self, tenant: str, inherited: Inherited, call: _Call) -> _Call:
        """Return the command that activates a successor: the one that has stopped its chain, if there is one."""
        stop = await find_stop(self._log, RunRef(tenant, inherited.continues.first))
        return call if stop is None else msgspec.structs.replace(call, at_once=False, stop=stop)

    async def _find_earlier_verdict(self, ref: RunRef, sequence: int) -> Verdict | None:
        """Return the verdict of a start that a worker has admitted without answering it; None if it was not admitted.

        Such a start is not checked again, because a second check might refuse it.
        """
        first = await self._log.last_of_type(ref, ev.RunAccepted.type) if is_name(ref.run) else None
        if first is None or first.event.cause != sequence:
            return None
        event = await whole(self._log, first)
        accepted = ev.payload_of(event) if event.type != UNREADABLE and not first.encrypted else None
        warnings = accepted.warnings if isinstance(accepted, ev.RunAccepted) else []
        return Verdict("accepted", ref.run, warnings=warnings)

    async def _examine(self, tenant: str, document: dict[str, Any] | list[Problem], body: bytes) -> Examined:
        """Check a start message together with its detached parts."""
        if isinstance(document, list):
            return Examined(document)
        if BLOBS not in document:
            return await self._examine_complete(tenant, document, len(body))
        async with self._gathering:
            whole = await insert_parts(self._log, tenant, document)
            if isinstance(whole, list):
                return Examined(whole, run_id=named_run_id(body))
            return await self._examine_complete(tenant, whole, START_BYTES_MAX)

    async def _examine_complete(self, tenant: str, document: dict[str, Any], size: int) -> Examined:
        """Check a complete start message; a fork is completed from its origin first."""
        inherited: Inherited | None = None
        if document.get(CONTINUES) is not None:
            found = await complete_successor(self._log, tenant, document)
            if isinstance(found, list):
                return Examined(found, run_id=named if isinstance(named := document.get("run_id"), str) else None)
            # The size of the predecessor was checked when it was admitted.
            (document, inherited), size = found, START_BYTES_MAX
        elif document.get("fork") is not None:
            completed = await self._forks.complete(tenant, document)
            if isinstance(completed, list):
                return Examined(completed, run_id=named if isinstance(named := document.get("run_id"), str) else None)
            # The size of the origin was checked when the origin was admitted.
            document, size = completed, START_BYTES_MAX
        examined = await self._definitions.offload(partial(examine_object, document, size), size=size)
        return msgspec.structs.replace(examined, inherited=inherited)

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        """Admit a child run without activating it; return every problem if it is refused. Repeating it is harmless.

        A child that cannot be forked from its predecessor starts from the beginning, with a warning.

        :raises NoAnswer: if the log does not answer
        :raises LogUnavailable: if the log has not answered for a long time
        :raises StoreFull: if the store is full
        """
        document = await self._definitions.offload(partial(decode_start, message), size=len(message))
        if isinstance(document, list):
            return document
        ids = SpanIds(self._log.store, child.tenant)
        begun_by = ids.span(parent.run, effect_address(ev.ChildStart.type, parent.key))
        came_from = tracecontext.sent_as(ids.trace(parent.run), begun_by)
        problems: list[Problem] = []
        warnings: list[Problem] = []
        for attempt in start_attempts(document):
            if attempt.get("fork") is not None:
                attempt = await self._forks.follow_input(child.tenant, attempt)
            examined = await self._examine_complete(child.tenant, attempt, len(message))
            try:
                verdict = await self._admit_run(child, examined, None, came_from, parent=parent, bears=warnings)
            except CodeElsewhere as error:
                # A child is admitted where its parent is performed.
                return error.problems
            problems = fit_message(verdict).problems if verdict.status == "rejected" else []
            if not problems or not concerns_only_fork(problems):
                break
            warnings = [restart_warning(problems[0])]
        return problems

    async def refusal_of(self, child: RunRef) -> list[Problem]:
        """Return every problem of a run that should have continued a child and was refused; empty if it was not.

        :raises NoAnswer: if the log does not answer
        """
        refused = await refusal_of_start(self._log, child)
        return refused.problems if refused is not None else []

    async def call_child(self, child: RunRef) -> None:
        """Route the command that activates an admitted child run; it does nothing to a run that has begun.

        :raises NoAnswer: if the log does not answer
        """
        await self._call(child, _Call(f"child-{child.tenant}-{child.run}", self._home))

    async def _admit_run(
        self,
        ref: RunRef,
        examined: Examined,
        call: _Call | None,
        came_from: TraceContext | None,
        cause: int = 0,
        parent: ev.Parent | None = None,
        bears: Sequence[Problem] = (),
    ) -> Verdict:
        """Admit or refuse a run. The warnings in ``bears`` are recorded; even a strict run is not refused for them."""
        checked = await self._check_run(ref, examined, came_from, parent, bears)
        if isinstance(checked, Verdict):
            return checked
        if call is not None and call.at_once and checked.is_plain:
            definition, command = definition_token(checked.plan.definition), FirstCommand(call.worker)
            new = NewRun(ref, checked.accepted, definition=definition, cause=cause, command=command)
            if await self._store_and_perform(new):
                return Verdict("accepted", ref.run, warnings=checked.warnings)
        if (mark := await purge_mark(self._log, ref)) is not None:
            return await self._refuse_purged(ref, mark)
        if checked.start.fork is not None:
            forked = await self._accept_fork(ref, checked.accepted, checked.start, checked.plan)
            if isinstance(forked, list):
                return Verdict("rejected", examined.run_id, problems=forked)
            checked = msgspec.structs.replace(checked, accepted=forked)
        return await self._store_run(ref, checked, call, cause)

    async def _check_run(
        self,
        ref: RunRef,
        examined: Examined,
        came_from: TraceContext | None,
        parent: ev.Parent | None,
        bears: Sequence[Problem],
    ) -> _Checked | Verdict:
        """Check everything about a run that does not depend on others that share its id or its events."""
        start = examined.start
        if start is None:
            return Verdict("rejected", examined.run_id, problems=examined.problems)
        if (inherited := examined.inherited) is not None:
            parent, came_from = inherited.parent, inherited.trace
        goes_on = start.fork is not None or inherited is not None
        start, plan = await self._plans.resolve(ref.tenant, start, examined.size, goes_on=goes_on)
        problems, warnings = self._find_problems(ref, start, plan)
        problems = [*examined.problems, *problems]
        if problems or isinstance(plan, list):
            return Verdict("rejected", examined.run_id, problems=problems)
        if parent is None and inherited is None and (exhausted := await self._find_exhausted_budgets(ref, plan)):
            return Verdict("rejected", examined.run_id, problems=exhausted)
        exists = start.run_id is not None and await self._exists(ref)
        if exists and (damage := await self._find_damage(ref)) is not None:
            return Verdict("rejected", ref.run, problems=[damage])
        trace = ev.Traced(
            self._log.store, ref.tenant, *((came_from.traceparent, came_from.tracestate) if came_from else ())
        )
        accepted = accepted_event(start, plan, ref, parent, [*bears, *warnings], trace)
        if inherited is not None:
            accepted = msgspec.structs.replace(accepted, continues=inherited.continues)
        return _Checked(start=start, plan=plan, accepted=accepted, warnings=warnings, exists=exists)

    def _find_problems(
        self, ref: RunRef, start: StartRun, plan: Plan[Any] | list[Problem]
    ) -> tuple[list[Problem], list[Problem]]:
        """Return the problems of a start and its plan, or of a start that has none, and the warnings."""
        refused = plan if isinstance(plan, list) else []
        found = self._check(ref.tenant, start, None if isinstance(plan, list) else plan)
        if any(problem.code == CODE_UNKNOWN for problem in refused):
            found = []  # What the code needs is not known.
        if not isinstance(plan, list):
            found += self._outgoing.problems(ref.tenant, plan.needs.subjects)
        warnings = [problem for problem in found if problem.severity == "warning"]
        problems = [*_id_problems(ref.run), *(one for one in found if one.severity == "error"), *refused]
        if not isinstance(plan, list):
            warnings = last_of_each_kind([*plan.definition.warnings, *plan.warnings, *warnings])
            if plan.options[STRICT]:
                problems += [msgspec.structs.replace(warning, severity="error") for warning in warnings]
        return problems, warnings

    async def _store_run(self, ref: RunRef, checked: _Checked, call: _Call | None, cause: int) -> Verdict:
        """Store a run's first event, and activate the run with ``call``, if given."""
        run, accepted, warnings = ref.run, checked.accepted, checked.warnings
        runlog = RunLog(self._log, ref, writer=f"{self._worker}.admission", room_patience_s=0.0)
        if key := checked.start.encryption_key:
            runlog.key = await key_of(self._log, ref.tenant, checked.start, child=accepted.parent is not None)
            if runlog.key is None:
                return Verdict("rejected", run, problems=[_forgotten_problem(key)])
        runlog.definition = definition_token(checked.plan.definition)
        runlog.state(accepted, cause=cause)
        origin = accepted.forked_from.run if accepted.forked_from is not None else ""
        if origin:
            # If the origin is purged concurrently, either the purge finds this note or the fork finds the purge mark.
            runlog.queue[0].beside = Shares(RunRef(ref.tenant, origin))
        duplicate = False
        first = None
        try:
            [queued] = await runlog.append_queued()
            if runlog.key is None and not origin:
                first = Recorded(runlog.sequence, ref, "", encode_event(queued.stored or queued.event), queued.event)
        except LogUnreadable as error:
            return Verdict("rejected", run, problems=[illegible_problem(error.message)])
        except Purged:
            return Verdict("rejected", run, problems=[unknown_origin_problem(origin)])
        except RunLost as error:
            # The run id is taken: by this start, before a crash, or by an earlier start with the same id.
            before = await self._log.last_of_type(ref, ev.RunAccepted.type)
            duplicate = before is None or before.event.cause != cause
            if duplicate and error.found is not None and error.found.n > 1:
                warnings = await self._warn_of_differences(before, accepted)
                if error.found.type in _RESTING:
                    return Verdict("accepted", run, duplicate, warnings=warnings)
                # Perhaps no worker performs it: a damaged store can lose the last event of a run that had ended.
            # An earlier attempt at this start may have crashed before it routed the command.
        return await self._activate(ref, call, Verdict("accepted", run, duplicate, warnings=warnings), first)

    async def _store_and_perform(self, new: NewRun) -> bool:
        """Have this worker store a run together with its first turn, if a batch is cheap; return whether it has."""
        return self._performer is not None and self._log.batches and await self._performer.store_and_perform(new)

    async def _exists(self, ref: RunRef) -> bool:
        return await self._log.next_sequence(self._log.subjects.run(ref), 1) is not None

    async def _find_damage(self, ref: RunRef) -> Problem | None:
        """Return the problem of an existing run whose last event is damaged, else None.

        The server treats such a run as one that does not exist, so the guard of the first event would not protect it.
        """
        last = await self._log.last(ref)
        return illegible_problem(unreadable(last).reason) if last is not None and not last.readable else None

    async def _find_exhausted_budgets(self, ref: RunRef, plan: Plan[Any]) -> list[Problem]:
        """Return a problem for each exhausted budget that applies to a new run; none for a run that exists already."""
        definition, now = definition_token(plan.definition), utc_now()
        found = (
            self._allowances.exhausted_allowances(ref.tenant, definition, now) if self._allowances is not None else []
        )
        if not found or await self._log.last(ref) is not None:
            return []
        told = "the budget of {0.name} is used up: {0.sums}"
        return [
            Problem("budget.used_up", told.format(one), expected=f"a start from {one.until.isoformat()} on")
            for one in found
        ]

    async def _accept_fork(
        self, ref: RunRef, accepted: ev.RunAccepted, start: StartRun, plan: Plan[Any]
    ) -> ev.RunAccepted | list[Problem]:
        """Return the first event of a fork, or the reasons why it cannot share the events of its origin."""
        parting = await self._forks.plan_parting(ref, start, plan)
        if isinstance(parting, list):
            return parting
        forked = parting.forked_from
        accepted = msgspec.structs.replace(accepted, seed=parting.seed, continues=parting.continues)
        if parting.differs:
            found = await self._forks.check_shared_events(ref, forked, accepted, start, plan)
            if isinstance(found, Problem):
                return [found]
            forked = found
        return msgspec.structs.replace(accepted, forked_from=forked)

    async def _warn_of_differences(self, first: Recorded | None, asked: ev.RunAccepted) -> list[Problem]:
        """Return a warning if a repeated start differs from the existing run of its id, which is not changed."""
        event = await whole(self._log, first) if first is not None else None
        before = ev.payload_of(event) if event is not None and event.type != UNREADABLE else None
        if not isinstance(before, ev.RunAccepted):
            return []
        given, now = before.start, asked.start
        differs = [name for name in ("input", "arguments", "options") if given.get(name) != now.get(name)]
        differs += ["definition"] if before.definition.hash != asked.definition.hash else []
        if not differs:
            return []
        message = f"a run with this id exists already, with another {', another '.join(differs)}; it is not changed"
        expected = "another run_id for another run"
        return [Problem("start.differs", message, "run_id", expected=expected, severity="warning")]

    async def _activate(
        self, ref: RunRef, call: _Call | None, verdict: Verdict, first: Recorded | None = None
    ) -> Verdict:
        """Activate an admitted run with ``call``, if given, and return its verdict.

        A run that was purged after the check of its id is refused instead: nothing was left for the guard of its first
        event to meet. ``first`` is the first event of a run that was just admitted and is neither encrypted nor a fork.
        """
        if (mark := await purge_mark(self._log, ref)) is not None:
            return await self._refuse_purged(ref, mark)
        if call is not None and call.stop is not None:
            await pass_on_stop(self._log, ref, call.stop.verb, call.stop.body, call.stop.told)
        elif call is not None:
            if first is not None and self._performer is not None:
                self._performer.perform_at_once(first, call.worker)
            await self._call(ref, call)
        return verdict

    async def _refuse_purged(self, ref: RunRef, mark: Gone) -> Verdict:
        """Refuse a start of a purged run and purge everything that was admitted for its id since."""
        await purge_again(self._log, ref, mark)
        return Verdict("rejected", ref.run, problems=[_purged_problem(ref.run)])

    async def _call(self, ref: RunRef, call: _Call) -> None:
        await route(self._log, ref, "start", b"{}", call.message_id, call.worker)


def _lacks_code(verdict: Verdict) -> bool:
    """Whether a start was refused because no worker has the code of its definition."""
    return verdict.status == "rejected" and any(problem.code == CODE_UNKNOWN for problem in verdict.problems)


def _forgotten_problem(key: str) -> Problem:
    message = f"the key {key!r} has been forgotten, and its name cannot be used again"
    return Problem("key.forgotten", message, "encryption_key", expected="another name")


def _purged_problem(run: str) -> Problem:
    message = f"the run {run!r} has been purged, and its id cannot be used again"
    return Problem(PURGED, message, "run_id", expected="another run_id")


def _id_problems(run: str) -> list[Problem]:
    try:
        token(run)
    except ValueError:
        expected = f"at most {TOKEN_BYTES_MAX} bytes"
        return [Problem(code="start.run_id", message="the run id is too long", where="run_id", expected=expected)]
    return []
