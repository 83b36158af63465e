"""Storing of admitted runs: the first event of each is stored, and the run is activated.

Both may be repeated after a crash: the run's first event is guarded, and the command that activates a run does nothing
to one that has begun.
"""

from typing import Protocol

from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.errors import LogUnreadable, RunLost
from callboard.bus.events import Problem, encode_event
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.port import FirstCommand, Purged, Shares, whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.log.successors import Stop
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark, purge_again, purge_mark
from callboard.bus.subjects import RunRef
from callboard.runtime.admission.command_routing import pass_on_stop, route
from callboard.runtime.admission.first_events import definition_token
from callboard.runtime.admission.fork_places import unknown_origin_problem
from callboard.runtime.admission.secret_starts import key_of
from callboard.runtime.admission.start_decision import AdmissibleRun
from callboard.runtime.admission.tells import illegible_problem
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.run.log import RunLog
from callboard.runtime.run.new_run import NewRun

PURGED = "run.purged"

_RESTING = (*ev.AT_REST, ev.RunParked.type, ev.RunDiverged.type)
"""Events after which a run is not performed until a new event or command activates it."""


class StartCommand(Struct, frozen=True):
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


class RunStorage:
    """Stores the runs that one worker admits."""

    def __init__(self, log: JetStreamLog, worker: str) -> None:
        self._log = log
        self._worker = worker
        self._performer: Performer | None = None

    def set_performer(self, performer: Performer) -> None:
        """Have ``performer`` begin the runs that are stored here and belong to it."""
        self._performer = performer

    async def store_at_once(self, ref: RunRef, run: AdmissibleRun, command: StartCommand | None, cause: int) -> bool:
        """Have this worker store a run together with its first turn, if a batch is cheap; return whether it has."""
        if command is None or not command.at_once or not run.is_plain:
            return False
        if self._performer is None or not self._log.batches:
            return False
        definition, first = definition_token(run.plan.definition), FirstCommand(command.worker)
        new = NewRun(ref, run.accepted, definition=definition, cause=cause, command=first)
        return await self._performer.store_and_perform(new)

    async def store(self, ref: RunRef, run: AdmissibleRun, command: StartCommand | None, cause: int) -> Verdict:
        """Store a run's first event, and activate the run with ``command``, if given.

        :raises NoAnswer: if the log does not answer
        """
        accepted, warnings = run.accepted, run.warnings
        runlog = RunLog(self._log, ref, writer=f"{self._worker}.admission", room_patience_s=0.0)
        if key := run.start.encryption_key:
            runlog.key = await key_of(self._log, ref.tenant, run.start, child=accepted.parent is not None)
            if runlog.key is None:
                return _refuse(ref, _forgotten_problem(key))
        runlog.definition = definition_token(run.plan.definition)
        runlog.state(accepted, cause=cause)
        origin = accepted.forked_from.run if accepted.forked_from is not None else ""
        if origin:
            # If the origin is purged concurrently, either the purge finds this note or the fork finds the purge mark.
            runlog.queue[0].beside = Shares(RunRef(ref.tenant, origin))
        duplicate, first = False, None
        try:
            [queued] = await runlog.append_queued()
            if runlog.key is None and not origin:
                first = Recorded(runlog.sequence, ref, "", encode_event(queued.stored or queued.event), queued.event)
        except LogUnreadable as error:
            return _refuse(ref, illegible_problem(error.message))
        except Purged:
            return _refuse(ref, unknown_origin_problem(origin))
        except RunLost as error:
            # The run id is taken: by this start, before a crash, or by an earlier start with the same id.
            before = await self._log.last_of_type(ref, ev.RunAccepted.type)
            duplicate = before is None or before.event.cause != cause
            if duplicate and error.found is not None and error.found.n > 1:
                warnings = await self._warn_of_differences(before, accepted)
                if error.found.type in _RESTING:
                    return Verdict("accepted", ref.run, duplicate, warnings=warnings)
                # Perhaps no worker performs it: a damaged store can lose the last event of a run that had ended.
            # An earlier attempt at this start may have crashed before it routed the command.
        return await self.activate(ref, command, Verdict("accepted", ref.run, duplicate, warnings=warnings), first)

    async def activate(
        self, ref: RunRef, command: StartCommand | None, verdict: Verdict, first: Recorded | None = None
    ) -> Verdict:
        """Activate an admitted run with ``command``, if given, and return its verdict.

        A run that was purged after the check of its id is refused instead: nothing was left for the guard of its first
        event to meet. ``first`` is the first event of a run that was just admitted and is neither encrypted nor a fork.
        """
        if (mark := await purge_mark(self._log, ref)) is not None:
            return await self.refuse_purged(ref, mark)
        if command is not None and command.stop is not None:
            await pass_on_stop(self._log, ref, command.stop.verb, command.stop.body, command.stop.told)
        elif command is not None:
            if first is not None and self._performer is not None:
                self._performer.perform_at_once(first, command.worker)
            await self.route_start(ref, command)
        return verdict

    async def refuse_purged(self, ref: RunRef, mark: PurgeMark) -> Verdict:
        """Refuse a start of a purged run and purge everything that was admitted for its id since."""
        await purge_again(self._log, ref, mark)
        message = f"the run {ref.run!r} has been purged, and its id cannot be used again"
        return _refuse(ref, Problem(PURGED, message, "run_id", expected="another run_id"))

    async def route_start(self, ref: RunRef, command: StartCommand) -> None:
        """Route the command that activates a run; it does nothing to a run that has begun."""
        await route(self._log, ref, "start", b"{}", command.message_id, command.worker)

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


def _refuse(ref: RunRef, problem: Problem) -> Verdict:
    return Verdict("rejected", ref.run, problems=[problem])


def _forgotten_problem(key: str) -> Problem:
    message = f"the key {key!r} has been forgotten, and its name cannot be used again"
    return Problem("key.forgotten", message, "encryption_key", expected="another name")
