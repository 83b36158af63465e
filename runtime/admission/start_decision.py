"""The decision about a start: whether its run may exist, with its plan and its first event, or all its problems."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.bus.log.recorded import unreadable
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.bus.outgoing_subjects import OutgoingPolicy
from callboard.bus.subjects import TOKEN_BYTES_MAX, RunRef, token
from callboard.bus.tracecontext import TraceContext
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.languages.plan import STRICT, Plan
from callboard.runtime.admission.first_events import accepted_event, definition_token, last_of_each_kind
from callboard.runtime.admission.forks import Forks
from callboard.runtime.admission.start_message import Examined
from callboard.runtime.admission.start_plans import StartPlans
from callboard.runtime.admission.tells import illegible_problem
from callboard.runtime.budgets.allowances import Allowances
from callboard.runtime.run.log import utc_now


class StartRefused(Exception):
    """A start is refused, for these reasons."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


class Sender(Struct, frozen=True):
    """Where a start is from: the trace of its sender, the message's sequence, and the parent of a child run.

    The ``warnings`` about how the start was made are recorded; even a strict run is not refused for them.
    """

    trace: TraceContext | None
    cause: int = 0
    parent: ev.Parent | None = None
    warnings: Sequence[Problem] = ()


class AdmissibleRun(Struct, frozen=True, kw_only=True):
    """A run that may be stored, unless it was purged or its fork differs from its origin.

    ``accepted`` is its first event. ``exists`` means that the stream has events of a run with this id.
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


class StartDecider:
    """Decides about the starts that one worker admits. ``check`` returns the problems of a start with its plan."""

    def __init__(
        self,
        log: JetStreamLog,
        plans: StartPlans,
        forks: Forks,
        check: Callable[[str, StartRun, Plan[Any] | None], list[Problem]],
        allowances: Allowances | None,
        outgoing: TenantRequests | None,
    ) -> None:
        self._log = log
        self._plans = plans
        self._forks = forks
        self._check = check
        self._allowances = allowances
        self._outgoing = outgoing or TenantRequests(log.nc, OutgoingPolicy(log.subjects.prefix))

    async def decide(self, ref: RunRef, examined: Examined, sender: Sender) -> AdmissibleRun:
        """Decide everything about a run that does not depend on others that share its id or its events.

        :raises StartRefused: with every problem
        :raises CodeElsewhere: if another worker has the code that the start names
        :raises NoAnswer: if the log does not answer
        """
        start, inherited = examined.start, examined.inherited
        if start is None:
            raise StartRefused(examined.problems)
        trace, parent = (inherited.trace, inherited.parent) if inherited is not None else (sender.trace, sender.parent)
        goes_on = start.fork is not None or inherited is not None
        start, plan = await self._plans.resolve(ref.tenant, start, examined.size, goes_on=goes_on)
        problems, warnings = self._find_problems(ref, start, plan)
        problems = [*examined.problems, *problems]
        if problems or isinstance(plan, list):
            raise StartRefused(problems)
        if parent is None and inherited is None:
            await self._check_budgets(ref, plan)
        exists = start.run_id is not None and await self._exists(ref)
        accepted = accepted_event(
            start, plan, ref, parent, [*sender.warnings, *warnings], self._trace_event(ref, trace)
        )
        if inherited is not None:
            accepted = msgspec.structs.replace(accepted, continues=inherited.continues)
        return AdmissibleRun(start=start, plan=plan, accepted=accepted, warnings=warnings, exists=exists)

    async def share_events(self, ref: RunRef, run: AdmissibleRun) -> AdmissibleRun:
        """Complete the first event of a fork with the events that it shares with its origin; others are unchanged.

        :raises StartRefused: if the fork cannot share the events
        :raises NoAnswer: if the log does not answer
        """
        if run.start.fork is None:
            return run
        parting = await self._forks.plan_parting(ref, run.start, run.plan)
        if isinstance(parting, list):
            raise StartRefused(parting)
        forked = parting.forked_from
        accepted = msgspec.structs.replace(run.accepted, seed=parting.seed, continues=parting.continues)
        if parting.differs:
            found = await self._forks.check_shared_events(ref, forked, accepted, run.start, run.plan)
            if isinstance(found, Problem):
                raise StartRefused([found])
            forked = found
        return msgspec.structs.replace(run, accepted=msgspec.structs.replace(accepted, forked_from=forked))

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

    async def _check_budgets(self, ref: RunRef, plan: Plan[Any]) -> None:
        """Refuse a new run to which an exhausted budget applies. A run that exists already has its verdict."""
        if self._allowances is None:
            return
        exhausted = self._allowances.exhausted_allowances(ref.tenant, definition_token(plan.definition), utc_now())
        if exhausted and await self._log.last(ref) is None:
            message = "the budget of {0.name} is used up: {0.sums}"
            raise StartRefused(
                [
                    Problem("budget.used_up", message.format(one), expected=f"a start from {one.until.isoformat()} on")
                    for one in exhausted
                ]
            )

    async def _exists(self, ref: RunRef) -> bool:
        """Whether the stream has events of a run with this id. A run whose last event is damaged is refused.

        The server treats such a run as one that does not exist, so the guard of the first event would not protect it.
        """
        if await self._log.next_sequence(self._log.subjects.run(ref), 1) is None:
            return False
        last = await self._log.last(ref)
        if last is not None and not last.readable:
            raise StartRefused([illegible_problem(unreadable(last).reason)])
        return True

    def _trace_event(self, ref: RunRef, trace: TraceContext | None) -> ev.Traced:
        sent = (trace.traceparent, trace.tracestate) if trace is not None else ()
        return ev.Traced(self._log.store, ref.tenant, *sent)


def _id_problems(run: str) -> list[Problem]:
    try:
        token(run)
    except ValueError:
        expected = f"at most {TOKEN_BYTES_MAX} bytes"
        return [Problem(code="start.run_id", message="the run id is too long", where="run_id", expected=expected)]
    return []
