"""Starts: each is received, examined and decided; then its run is stored and activated, or the start is refused.

A refusal has all problems. Every step may be repeated after a crash.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus import tracecontext
from callboard.bus.commands import WORKER_HEADER, StartRun, Wake
from callboard.bus.events import Problem
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import whole
from callboard.bus.log.private_logging import omit_content
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import erase, purge_mark
from callboard.bus.nats.queue import Delivery
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.bus.run_ids import derived_run_id
from callboard.bus.subjects import RunRef, is_name
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.languages.plan import Plan
from callboard.projections.run.span_ids import SpanIds, effect_address
from callboard.runtime.admission.chains import find_stop
from callboard.runtime.admission.command_routing import route
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.forks import ForkOrigin, Forks
from callboard.runtime.admission.refusals import record_refusal, refusal_of_start
from callboard.runtime.admission.secret_starts import erase_start, find_admitted, is_secret, withhold_texts
from callboard.runtime.admission.start_decision import AdmissibleRun, Sender, StartDecider, StartRefused
from callboard.runtime.admission.start_examination import StartExaminer
from callboard.runtime.admission.start_message import CONTINUES, Examined, Inherited, decode_start, named_run
from callboard.runtime.admission.start_plans import CodeElsewhere, CodeLocations, StartPlans
from callboard.runtime.admission.start_storage import PURGED, Performer, RunStorage, StartCommand
from callboard.runtime.admission.successors import complete_successor, parent_of
from callboard.runtime.admission.verdicts import Verdict, fit_message
from callboard.runtime.budgets.allowances import Allowances

AT_ONCE_S = 1.0
"""Maximum age of a start that is stored together with its first turn, in seconds. That turn may crash the worker, and
crashes are counted by the claims in the log. The loss of a worker is noticed later than that, so at the next attempt
the run is in the log before its first turn."""


class _Received(Struct, frozen=True):
    """A start as it arrived: its run, and its decoded message, or the problem if that is not a JSON object.

    A ``secret`` start is for a run with an encryption key.
    """

    ref: RunRef
    document: dict[str, Any] | list[Problem]
    delivery: Delivery
    secret: bool

    @property
    def sequence(self) -> int:
        return self.delivery.sequence

    @property
    def continues(self) -> bool:
        """Whether the run continues another one."""
        return isinstance(self.document, dict) and CONTINUES in self.document


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
        self._log = log
        self._home = worker if guest else ""
        self._definitions = definitions
        self._forks = forks
        self._plans = StartPlans(log, definitions)
        self._examiner = StartExaminer(log, definitions, forks)
        self._decider = StartDecider(log, self._plans, forks, check, allowances, outgoing)
        self._storage = RunStorage(log, worker)

    def set_worker(self, performer: Performer, hosts: CodeLocations) -> None:
        """Have ``performer`` begin the runs that are admitted here and belong to it.

        ``hosts`` says which worker has the code of a start that this one does not have.
        """
        self._storage.set_performer(performer)
        self._plans.set_hosts(hosts)

    async def admit(self, tenant: str, delivery: Delivery) -> Verdict | None:
        """Admit or refuse a start; None if it continues a run and no worker has its code at the moment.

        The message of a start with an encryption key is erased afterwards, so that only encrypted content remains. The
        message of a start whose run exists already or has been purged is erased too, because a purge would not find it.

        :raises CodeElsewhere: if another worker is to admit it, because it has the code that the start names
        """
        received = await self._receive(tenant, delivery)
        verdict = await self._admit_received(received)
        if received.continues and _lacks_code(verdict):
            return None
        ref, document, secret = received.ref, received.document, received.secret
        if verdict.status == "rejected":
            await record_refusal(self._log, tenant, "start", withhold_texts(verdict) if secret else verdict, delivery)
            await self.wake_parent(ref, document, delivery.sequence)
        if secret or any(problem.code == PURGED for problem in verdict.problems):
            await erase_start(self._log, ref, delivery.sequence, document)
        elif verdict.duplicate:
            await erase(self._log, delivery.sequence)
        return verdict

    async def _receive(self, tenant: str, delivery: Delivery) -> _Received:
        document = decode_start(delivery.data)
        secret = await is_secret(self._log, tenant, delivery.data, document)
        if secret:
            omit_content()
        run = named_run(document) or derived_run_id(self._log.stream, delivery.sequence, delivery.time_ns)
        return _Received(RunRef(tenant, run), document, delivery, secret)

    async def _admit_received(self, received: _Received) -> Verdict:
        ref, delivery = received.ref, received.delivery
        # The number of deliveries starts again when a consumer is reset, so the age of the message counts too.
        age = self._log.now() - delivery.stored_time
        at_once = delivery.deliveries == 1 and age.total_seconds() < AT_ONCE_S
        command = StartCommand(f"start-{delivery.sequence}", delivery.headers.get(WORKER_HEADER, ""), at_once)
        before = await self._find_earlier_verdict(ref, delivery.sequence) if delivery.deliveries > 1 else None
        if before is not None:
            if received.continues and isinstance(received.document, dict):
                completed = await complete_successor(self._log, ref.tenant, received.document)
                if not isinstance(completed, list):
                    command = await self._with_stop(ref.tenant, completed[1], command)
            return await self._storage.activate(ref, command, before)
        examined = await self._examiner.examine(ref.tenant, received.document, len(delivery.data))
        if examined.inherited is not None:
            command = await self._with_stop(ref.tenant, examined.inherited, command)
        if received.secret:
            before = await find_admitted(self._log, ref, delivery.sequence, examined.problems)
            if before is not None:
                return before if before.duplicate else await self._storage.activate(ref, command, before)
        return await self._admit_run(
            ref, examined, Sender(tracecontext.read(delivery.headers), delivery.sequence), command
        )

    async def _admit_run(
        self, ref: RunRef, examined: Examined, sender: Sender, command: StartCommand | None
    ) -> Verdict:
        """Admit or refuse a run, and activate it with ``command``, if given."""
        try:
            run = await self._decider.decide(ref, examined, sender)
            if await self._storage.store_at_once(ref, run, command, sender.cause):
                return Verdict("accepted", ref.run, warnings=run.warnings)
            if (mark := await purge_mark(self._log, ref)) is not None:
                return await self._storage.refuse_purged(ref, mark)
            run = await self._decider.share_events(ref, run)
        except StartRefused as refusal:
            return Verdict("rejected", examined.run_id, problems=refusal.problems)
        return await self._storage.store(ref, run, command, sender.cause)

    async def _with_stop(self, tenant: str, inherited: Inherited, command: StartCommand) -> StartCommand:
        """Return the command that activates a successor: the one that has stopped its chain, if there is one."""
        stop = await find_stop(self._log, RunRef(tenant, inherited.continues.first))
        return command if stop is None else msgspec.structs.replace(command, at_once=False, stop=stop)

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

    async def wake_parent(self, ref: RunRef, document: dict[str, Any] | list[Problem], sequence: int) -> None:
        """Wake the parent that waits for the end of a run whose start was refused, if the run continues a child."""
        parent = await parent_of(self._log, ref.tenant, document) if isinstance(document, dict) else None
        if parent is not None:
            wake = msgspec.json.encode(Wake(parent.key, ref.run))
            await route(self._log, RunRef(ref.tenant, parent.run), "wake", wake, f"refused-{sequence}")

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
        sender = Sender(tracecontext.sent_as(ids.trace(parent.run), begun_by), parent=parent)
        problems: list[Problem] = []
        for attempt in start_attempts(document):
            if attempt.get("fork") is not None:
                attempt = await self._forks.follow_input(child.tenant, attempt)
            examined = await self._examiner.examine_complete(child.tenant, attempt, len(message))
            try:
                verdict = await self._admit_run(child, examined, sender, None)
            except CodeElsewhere as error:
                # A child is admitted where its parent is performed.
                return error.problems
            problems = fit_message(verdict).problems if verdict.status == "rejected" else []
            if not problems or not concerns_only_fork(problems):
                break
            sender = msgspec.structs.replace(sender, warnings=[restart_warning(problems[0])])
        return problems

    async def rehearse(self, ref: RunRef, document: dict[str, Any]) -> tuple[AdmissibleRun, ForkOrigin]:
        """Decide about a start that forks a run, without storing anything, and without checking the shared events.

        :raises StartRefused: with every problem
        :raises CodeElsewhere: if another worker has the code that the start names
        :raises NoAnswer: if the log does not answer
        """
        examined = await self._examiner.examine_complete(ref.tenant, document, 0)
        # A child, to which no budget applies that is not its parent's.
        run = await self._decider.decide(ref, examined, Sender(None, parent=ev.Parent(ref.run, "", 1)))
        parting = await self._forks.plan_parting(ref, run.start, run.plan)
        if isinstance(parting, list):
            raise StartRefused(parting)
        return run, parting

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
        await self._storage.route_start(child, StartCommand(f"child-{child.tenant}-{child.run}", self._home))


def _lacks_code(verdict: Verdict) -> bool:
    """Whether a start was refused because no worker has the code of its definition."""
    return verdict.status == "rejected" and any(problem.code == CODE_UNKNOWN for problem in verdict.problems)


_TRAVELS = ("source",)
"""Members of a definition that came along with the parent. A definition without them is taken from the predecessor,
even if a newer one is registered."""


def start_attempts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the start messages to try for a child: first as a fork, if it is one, then without the fork."""
    plain = {name: value for name, value in document.items() if name != "fork"}
    if document.get("fork") is not None:
        definition = plain.get("definition")
        travels = isinstance(definition, dict) and any(definition.get(name) is not None for name in _TRAVELS)
        left_out = () if travels else ("definition",)
        yield {name: value for name, value in document.items() if name not in left_out}
    yield plain


def concerns_only_fork(problems: Sequence[Problem]) -> bool:
    """Whether a start would be admitted if it were not a fork."""
    return all(problem.where.partition(".")[0] == "fork" or problem.code.startswith("fork.") for problem in problems)


def restart_warning(problem: Problem) -> Problem:
    """Return the warning of a child that starts from the beginning."""
    message = f"the run starts from the beginning and not from its predecessor: {problem.code}: {problem.message}"
    return Problem("fork.begun_anew", message, expected=problem.expected, severity="warning")
