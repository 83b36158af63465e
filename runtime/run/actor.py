"""The run actor: one per active run. Claims the run and performs it.

The actor reads the run, checks whether this worker may perform it, and claims it. `run_loop` does the rest.

Emits: run.adopted, run.claimed, run.start
"""

from collections.abc import Sequence

import structlog
from anyio.lowlevel import checkpoint

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.bus.log.forks import origin_of
from callboard.bus.log.port import ROOM_PATIENCE_S, Behind, EventLog, NoAnswer, Purged
from callboard.bus.log.recorded import Recorded, readable, unreadable
from callboard.bus.subjects import RunRef
from callboard.lib.installed import own_version
from callboard.lib.processes import own_process
from callboard.runtime.interpreter.code import adopted_digest, code_of
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.activation import Activation, ActivationEnd, Command, RunServices
from callboard.runtime.run.claim_check import ClaimCheck
from callboard.runtime.run.crashes import Probation
from callboard.runtime.run.inbox import ENDING, URGENT, Inbox
from callboard.runtime.run.kill import end_killed
from callboard.runtime.run.log import AT_ONCE_BYTES_MAX, Clock, RunLog, events_of, read_run
from callboard.runtime.run.new_run import NewRun
from callboard.runtime.run.run_loop import RunLoop

log = structlog.get_logger(__name__)

FRESH_EVENTS = 2
"""Number of events to read of a run that has presumably not been claimed: its first event, and one more to check."""


class RunActor:
    """One activation of a run, from its claim until it parks, ends or is lost."""

    def __init__(
        self,
        ref: RunRef,
        log: EventLog,
        services: RunServices,
        clock: Clock | None = None,
        *,
        fresh: bool = False,
        first: Recorded | None = None,
        new: NewRun | None = None,
        probation: Probation | None = None,
        activated_by: Command | None = None,
    ) -> None:
        """Create the actor of one activation.

        ``fresh`` means that the run has most likely not been claimed before. ``first`` is the first event of a fresh
        run that was just appended, so that it need not be read. ``new`` is a run of which nothing is stored yet.
        Without ``probation``, crashes do not count.
        """
        self.ref = ref
        self.inbox = Inbox()
        self._check = ClaimCheck(ref, services, probation)
        self._fresh = fresh or first is not None or new is not None
        self._first = first
        self._new = new
        self._activated_by = activated_by
        self._log = log
        self._services = services
        self._runlog = RunLog(
            log,
            ref,
            writer=services.worker,
            clock=clock,
            inline_bytes_max=services.inline_bytes_max,
            # The sender of a start learns at once that the store is full.
            room_patience_s=ROOM_PATIENCE_S if new is None else 0.0,
            beside=services.pace.beside,
        )
        self._active = Activation(ref, self._runlog)

    # -- public interface ---------------------------------------------------------------------------------------------

    def tell(self, command: Command) -> bool:
        """Queue a command; return False if the inbox is full."""
        if self.inbox.full:
            return False
        self.inbox.take(command)
        self._active.wake()
        return True

    def drain(self) -> None:
        """Begin no more effects; end as soon as the running ones have their outcomes."""
        self._active.draining = True
        self._active.wake()

    def release(self) -> None:
        """Stop the running effects, record that they were stopped, and end. For a worker that shuts down."""
        self._active.releasing = True
        self.drain()

    def lose(self, event: Event) -> None:
        """Stop if an event from the log belongs to a newer claim, because then another worker has taken the run."""
        self._active.lose(event)

    @property
    def sequence(self) -> int:
        """The stream sequence of the last event that was read or appended."""
        return self._runlog.sequence

    async def run(self) -> ActivationEnd:
        """Perform the run until it parks or ends, or until `drain` releases it.

        :raises RunLost: if another worker has taken the run
        :raises ReplayDiverged: if this version does not follow the run's log
        :raises LogUnreadable: if the run's log has a message that is not an event
        :raises NotYet: if workers have crashed while they performed the run and it has to wait
        :raises KeepsCrashing: if every worker that claimed the run has crashed
        :raises Behind: if the replica that was read lags
        :raises LogUnavailable: if the log does not answer
        :raises StoreFull: if the store is full
        """
        if self._new is not None:
            return await self._perform_new(self._new)
        if self._active.draining:
            return ActivationEnd.DRAINED
        recorded = await self._read()
        if not recorded:
            return ActivationEnd.NOT_FOUND
        if (forked := origin_of(recorded[0].event)) is not None and self._fresh:
            recorded = await read_run(self._log, self.ref)
        readable(recorded)
        if recorded[-1].event.type == ev.RunEnd.type:
            return ActivationEnd.FINISHED_BEFORE
        if self._fresh and recorded[-1].event.n > (forked.n if forked is not None else 1):
            return ActivationEnd.CLAIMED_BEFORE
        if self._activated_before(recorded):
            return ActivationEnd.PARKED_BEFORE
        if await self._end_unbegun(recorded):
            return ActivationEnd.ENDED
        if not self._fresh:
            await self._check_read(recorded)
            urgent = any(command.verb in URGENT for command in self.inbox.waiting)
            shared = forked.n if forked is not None else 0
            await self._check.check(events_of(recorded), shared, self._runlog.clock(), urgent=urgent)
        try:
            return await self._act(recorded)
        finally:
            self._check.leave_probation()

    async def _act(self, recorded: list[Recorded]) -> ActivationEnd:
        claim = await self._claim(recorded)
        events = [*events_of(recorded), claim]
        recorded.clear()
        return await self._perform(events)

    async def _perform_new(self, new: NewRun) -> ActivationEnd:
        """Perform a run of which nothing is stored: its first event is appended in one batch with its first turn."""
        error: Exception | None = None
        try:
            if self._active.draining:
                return ActivationEnd.DRAINED
            self._runlog.definition = new.definition
            accepted = self._runlog.state(new.accepted, cause=new.cause)
            if len(accepted.payload) > self._services.inline_bytes_max:
                # Its large values would be stored before the log refuses a run that was purged.
                return ActivationEnd.NOT_STORED
            self._runlog.queue[0].beside = new.command
            return await self._perform([accepted, self._state_claim()], new)
        except (CallboardError, NoAnswer, Purged) as caught:
            if new.stored:
                raise
            error = caught
            return ActivationEnd.NOT_STORED
        finally:
            new.note_unstored(error)

    async def _perform(self, events: list[Event], new: NewRun | None = None) -> ActivationEnd:
        """Perform a run with these events, the last of which may not be appended yet."""
        loop = await self._begin(events, new)
        return await loop.perform()

    async def _read(self) -> list[Recorded]:
        """Read the run. Of a supposedly fresh run, read just enough events to see whether it is fresh."""
        if self._first is not None:
            return [self._first]
        return await read_run(self._log, self.ref, limit=FRESH_EVENTS if self._fresh else None)

    async def _check_read(self, recorded: list[Recorded]) -> None:
        """Check that the run was read to its end.

        A claim after any other event would be refused as if another worker had the run, and be retried just as late.

        :raises Behind: if it was not
        :raises LogUnreadable: if the last event is damaged
        """
        last, read = await self._log.last(self.ref), self._own(recorded)[-1].sequence
        if last is not None and not last.readable:
            raise unreadable(last)
        if last is not None and last.sequence > read:
            raise Behind(
                f"run {self.ref.run} was read up to sequence {read}, but its last event has sequence {last.sequence}"
            )

    def _activated_before(self, recorded: list[Recorded]) -> bool:
        """Whether the activating command has activated the run before and the run has been parked since.

        The worker that parked the run acknowledges the command. If this worker took the run and crashed, no command
        would activate the run again.
        """
        own, by = self._own(recorded), self._activated_by
        if by is None or own[-1].event.type != ev.RunParked.type:
            return False
        if by.verb in ("start", "alarm"):
            return by.sequence < own[-1].sequence
        return any(item.event.cause == by.sequence for item in own)

    async def _end_unbegun(self, recorded: list[Recorded]) -> bool:
        """End a run that continues another one and has not begun, if the chain was stopped; return whether it was.

        Its first turn might continue the chain before it takes the command.
        """
        waiting = self.inbox.waiting
        command = next((one for one in waiting if one.verb == "kill" or one is waiting[0]), None)
        if command is None or command.verb not in ENDING or not _is_unbegun_link(recorded):
            return False
        if not await end_killed(self._log, self._services, self.ref, command):
            return False
        command.done()
        waiting.remove(command)
        return True

    def _own(self, recorded: list[Recorded]) -> list[Recorded]:
        """The events of the run itself. Causes and large values of a fork's shared events belong to its origin."""
        return [item for item in recorded if item.ref == self.ref]

    # -- claim and replay ---------------------------------------------------------------------------------------------

    async def _claim(self, recorded: list[Recorded]) -> Event:
        for item in self._own(recorded):
            self.inbox.know(item.event)
            self._runlog.know_blobs(item.event.blobs)
        # Commands are routed after the first event of their run.
        own = self._own(recorded)
        first = own[0].sequence if own else 0
        self.inbox.heard.note(first)
        self.inbox.heard.tells = first
        self._runlog.continue_from(recorded, after=max(item.sequence for item in recorded))
        claim = self._state_claim()
        if not self._fresh:
            # Append at once, so that any other worker that still performs the run notices. A fresh run has no other.
            await self._runlog.append_queued()
        return claim

    def _state_claim(self) -> Event:
        self._runlog.epoch += 1
        return self._runlog.state(
            ev.RunClaimed(self._services.worker, self._runlog.epoch, own_version(), own_process())
        )

    async def _begin(self, events: list[Event], new: NewRun | None) -> RunLoop:
        """Admit the run again, and return its loop. Adds the events that a run or its new code begins with."""
        admission = await self._services.read_admission(events[0], adopted_digest(events))
        if digest := admission.plan.adopts:
            # The claim check has replayed the run with this code, unless the run has not begun.
            events.append(self._adopt(digest, events))
            admission = await self._services.read_admission(events[0], digest)
        if len(events[0].payload) > AT_ONCE_BYTES_MAX:
            # A large start takes long to read; other runs continue in between.
            await checkpoint()
        self._runlog.keep_secret(self._services.secrets(admission))
        if not any(event.type == ev.RunStart.type for event in events):
            events.append(self._start(admission))
        return RunLoop(self._active, self._services, self.inbox, self._check, self._log, admission, events, new)

    def _adopt(self, digest: str, events: Sequence[Event]) -> Event:
        """Record that the run continues with the code of this digest."""
        before = code_of(events)
        previous = before.digest if before is not None else ""
        return self._runlog.state(ev.RunAdopted(self._services.worker, digest, previous))

    def _start(self, admission: Admitted) -> Event:
        plan = admission.plan
        start = ev.RunStart(
            workflow=plan.definition.name,
            input=plan.input,
            arguments=plan.arguments,
            options=plan.options,
            execution_id=forked.execution_id if (forked := admission.accepted.forked_from) else self.ref.run,
            environment=self._services.environment(admission),
        )
        return self._runlog.state(start)


def _is_unbegun_link(recorded: list[Recorded]) -> bool:
    """Whether a run continues another one, and has not begun."""
    first = ev.payload_of(recorded[0].event) if recorded[0].event.type == ev.RunAccepted.type else None
    continues = isinstance(first, ev.RunAccepted) and first.continues is not None
    return continues and not any(item.event.type == ev.RunStart.type for item in recorded)
