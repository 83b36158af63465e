"""The run actor: one per active run. Claims the run, replays it, drives its interpreter and records its events.

It has one loop. Numbered events are delivered to the interpreter in order. The events that the interpreter states in
response, commands and elapsed deadlines are numbered next, and all of them are appended in one batch. Once the batch is
acknowledged, it takes effect outside: intents are handed to their node actors, and commands are acknowledged. So an
outcome is stored together with its consequences, and no effect begins before its intent is in the log. When nothing is
left to do at this worker, the run parks.

Its parts are `inbox` (commands), `in_flight` (effects), `resting` (deadlines and parking), `children` (child runs) and
`child_budgets` (the usage of child runs).

Emits: run.adopted, run.claimed, run.released, run.start
"""

import datetime as dt
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import msgspec
import structlog
from anyio.lowlevel import checkpoint

from callboard.actors.actor import Supervisor
from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError, ReplayDiverged, RunLost, unexpected_failure
from callboard.bus.events import Event, Payload
from callboard.bus.log.forks import origin_of
from callboard.bus.log.port import Behind, EventLog, NoAnswer, Recorded, RunMessages, readable, unreadable
from callboard.bus.subjects import RunRef
from callboard.bus.tracecontext import sent_as, within
from callboard.projections.run.span_ids import ids_of
from callboard.runtime.interpreter.code import adopted_digest, code_of
from callboard.runtime.interpreter.computation import Computation
from callboard.runtime.interpreter.replay import Admitted, build_stage, deliver_in_pieces, replay_in_pieces, start_of
from callboard.runtime.interpreter.run_end import conclude, conclude_diverged, conclude_failed
from callboard.runtime.run.activation import Activation, Command, Services
from callboard.runtime.run.budget import Budget
from callboard.runtime.run.child_budgets import ChildBudgets
from callboard.runtime.run.child_reports import ChildReports
from callboard.runtime.run.children import ChildRuns
from callboard.runtime.run.claim_check import ClaimCheck
from callboard.runtime.run.crashes import Probation
from callboard.runtime.run.in_flight import InFlight
from callboard.runtime.run.inbox import URGENT, Inbox
from callboard.runtime.run.log import AT_ONCE_BYTES_MAX, Clock, RunLog, events_of, read_run
from callboard.runtime.run.rest import Rest

log = structlog.get_logger(__name__)

FRESH_EVENTS = 2
"""Number of events to read of a run that has presumably not been claimed: its first event, and one more to check."""

Ending = Literal[
    "ended", "parked", "drained", "finished_before", "claimed_before", "parked_before", "not_found", "quarantined"
]


class RunActor:
    """One activation of a run, from its claim until it parks, ends or is lost."""

    def __init__(
        self,
        ref: RunRef,
        log: EventLog,
        services: Services,
        clock: Clock | None = None,
        *,
        fresh: bool = False,
        first: Recorded | None = None,
        probation: Probation | None = None,
        activated_by: Command | None = None,
    ) -> None:
        """Create the actor of one activation.

        ``fresh`` means that the run has most likely not been claimed before. ``first`` is the first event of a fresh
        run that was just appended, so that it need not be read. Without ``probation``, crashes do not count.
        """
        self.ref = ref
        self.inbox = Inbox()
        self._check = ClaimCheck(ref, services, probation)
        self._releasing = False
        self._released = False
        self._fresh = fresh or first is not None
        self._first = first
        self._activated_by = activated_by
        self._log = log
        self._services = services
        self._runlog = RunLog(
            log,
            ref,
            writer=services.worker,
            clock=clock,
            inline_bytes_max=services.inline_bytes_max,
            beside=services.pace.beside,
        )
        self._active = Activation(ref, services, self._runlog)
        self._tasks = Supervisor(self._task_failed)
        self._ending: Ending | None = None
        self._lost_to: Event | None = None
        self._long = False
        self._drop_interpreter: Callable[[], None] = _nothing
        self._flight: InFlight
        self._children: ChildRuns
        self._reports: ChildReports
        self._kin: ChildBudgets
        self._rest: Rest
        self._budget: Budget
        self._admission: Admitted

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
        self._releasing = True
        self.drain()

    def lose(self, event: Event) -> None:
        """Stop if an event from the log belongs to a newer claim, because then another worker has taken the run."""
        if event.epoch > self._runlog.epoch > 0:
            self._lost_to = event
            self._active.wake()

    @property
    def sequence(self) -> int:
        """The stream sequence of the last event that was read or appended."""
        return self._runlog.sequence

    async def run(self) -> Ending:
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
        if self._active.draining:
            return "drained"
        recorded = await self._read()
        if not recorded:
            return "not_found"
        if (forked := origin_of(recorded[0].event)) is not None and self._fresh:
            recorded = await read_run(self._log, self.ref)
        readable(recorded)
        if recorded[-1].event.type == ev.RunEnd.type:
            return "finished_before"
        if self._fresh and recorded[-1].event.n > (forked.n if forked is not None else 1):
            return "claimed_before"
        if self._activated_before(recorded):
            return "parked_before"
        if not self._fresh:
            await self._check_read(recorded)
            urgent = any(command.verb in URGENT for command in self.inbox.waiting)
            shared = forked.n if forked is not None else 0
            await self._check.check(events_of(recorded), shared, self._runlog.clock(), urgent=urgent)
        try:
            return await self._act(recorded)
        finally:
            self._check.leave_probation()

    async def _act(self, recorded: list[Recorded]) -> Ending:
        claim = await self._claim(recorded)
        events = [*events_of(recorded), claim]
        recorded.clear()
        error: CallboardError | NoAnswer | None = None
        with ExitStack() as self._parting:
            async with self._tasks:
                try:
                    await self._perform(events)
                except (CallboardError, NoAnswer) as caught:
                    # Raised below: a task group would wrap it.
                    error = caught
                finally:
                    self._tasks.stop_all()
                    self._drop_interpreter()
        if error is not None:
            raise error
        assert self._ending is not None
        return self._ending

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
        self._runlog.continue_from(recorded, behind=max(item.sequence for item in recorded))
        self._runlog.epoch += 1
        claim = self._runlog.state(ev.RunClaimed(worker=self._services.worker, epoch=self._runlog.epoch))
        if not self._fresh:
            # Append at once, so that any other worker that still performs the run notices. A fresh run has no other.
            await self._runlog.append_queued()
        return claim

    async def _perform(self, events: list[Event]) -> None:
        admission = await self._services.read_admission(events[0], adopted_digest(events))
        if digest := admission.plan.adopts:
            # The claim check has replayed the run with this code, unless the run has not begun.
            events.append(self._adopt(digest, events))
            admission = await self._services.read_admission(events[0], digest)
        # A large start takes long to read, here and below; other runs continue in between.
        is_large = len(events[0].payload) > AT_ONCE_BYTES_MAX
        if is_large:
            await checkpoint()
        self._runlog.keep_secret(self._services.secrets(admission))
        carrier = self._services.carrier(self.ref, admission, self._runlog.keep)
        if not any(event.type == ev.RunStart.type for event in events):
            events.append(self._start(admission))
        self._admission = admission
        parked_n = max((event.n for event in events if event.type == ev.RunParked.type), default=0)
        forked = admission.accepted.forked_from
        if forked is not None and parked_n <= forked.n:
            parked_n = 0  # the origin has begun the effects that were open then; the fork has not
        spawn = self._tasks.spawn
        self._budget = Budget(admission.accepted.limits, self._services.prices, forked.n if forked is not None else 0)
        ids = ids_of(admission.accepted)
        crashes = self._check.crashes
        self._flight = InFlight(self._active, carrier, spawn, self._budget, parked_n=parked_n, ids=ids, crashes=crashes)
        self._reports = ChildReports(self._active, self._flight, self.inbox, self.lose)
        self._kin = ChildBudgets(self._active, self._budget, self.inbox, admission.accepted.parent)
        self._children = self._flight.children = ChildRuns(
            self.ref,
            admission,
            self._log,
            self._services.children,
            keeper=self._reports,
            spawn=spawn,
            epoch=self._runlog.epoch,
            counts=self._kin.counts,
            key=self._runlog.key,
        )
        for event in events:
            self._budget.take(event)
        # Messages that belong to a recorded event were stored in one batch with it.
        self._budget.releasing.clear()
        self._rest = Rest(self._active, self._flight, self._budget)
        self._parting.callback(self._part)
        if is_large:
            await checkpoint()
        start = await self._read_start(events)
        # Log messages belong to the run's root span. Only effects pass their trace context on.
        self._parting.enter_context(within(sent_as(ids.trace(self.ref.run), ids.span(self.ref.run), told=False)))
        # A replay delivers the recorded events; only events that it states beyond them are still to be delivered.
        self._runlog.numbered.clear()
        await self._work(self._replaying(events, start))
        del start
        # While the run is active, its log is not needed in memory.
        events.clear()
        self._verify_replayed()
        await self._live()

    def _part(self) -> None:
        """Break reference cycles, so that memory is freed with the run and not at the next garbage collection."""
        self._active.over()
        self._flight.over()
        del self._reports, self._children, self._kin

    async def _read_start(self, events: list[Event]) -> ev.RunStart:
        """Read the run's ``run.start``, on a thread if it is large."""
        if sum(len(event.payload) for event in events if event.type == ev.RunStart.type) <= AT_ONCE_BYTES_MAX:
            return start_of(events)
        reading = Computation(lambda: start_of(events))
        await self._services.pace.beside(reading.carry_out)
        return reading.outcome()

    def _replaying(self, events: list[Event], start: ev.RunStart | None = None) -> Iterator[Computation | None]:
        """Create a new interpreter and replay it to the end of the log."""
        self._drop_interpreter()
        sink = LiveSink(self._runlog, self._flight)
        stage, started = build_stage(self._admission, self.ref, events, sink, self._services.pace.is_pressed, start)
        self._active.stage = stage
        self._drop_interpreter = stage.driver.drop
        return replay_in_pieces(stage, self._admission, started, events)

    async def _forget_and_replay(self) -> None:
        """Replace the interpreter by one that is replayed from the log, as another worker would do."""
        events = events_of(readable(await read_run(self._log, self.ref)))
        if self._runlog.queue or not events or events[-1].n != self._runlog.n:
            # A new outcome has arrived, or the replica that was read lags; a later append tries again.
            return
        # Without a pause: an outcome that arrives needs an interpreter that has announced its effect.
        with self._guard():
            for _ in self._replaying(events):
                pass
        self._verify_replayed()

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
            tallies=True,
        )
        return self._runlog.state(start)

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while self._ending is None:
            await self._deliver_numbered()
            if self._lost_to is not None:
                raise RunLost(self.ref, self._runlog.n + 1, self._lost_to)
            if self._check.on_probation and not self._flight.suspects:
                self._check.leave_probation()
            busy = bool(self._flight) and not self._release()
            idle = not self._runlog.queue and self._active.draining and not busy
            if not idle and self._number_next():
                continue
            if self._runlog.queue:
                await self._append()
            elif self.inbox.pointless:
                await self._dismiss()
            elif idle:
                self._ending = "drained"
            elif (due := self._elapsed_deadline()) is not None:
                await self._rest.look(due, self.inbox.heard)
            elif not await self._flight.begin():
                await self._rest.wait()

    def _release(self) -> bool:
        """Record that running effects are stopped, if the worker shuts down; return whether it does."""
        if self._releasing and not self._released and not self._active.closing:
            self._released = True
            self._runlog.state(ev.RunReleased(worker=self._services.worker))
        return self._released

    async def _dismiss(self) -> None:
        """Acknowledge pointless commands, if this worker still has the run.

        :raises RunLost: if another worker has taken the run
        :raises NoAnswer: if the log does not answer
        """
        last = await self._log.last(self.ref)
        if last is not None and last.event.epoch > self._runlog.epoch:
            raise RunLost(self.ref, self._runlog.n + 1, last.event)
        self.inbox.dismiss()

    async def _deliver_numbered(self) -> None:
        """Deliver numbered events to the interpreter in order, whether or not they are acknowledged."""
        numbered = self._runlog.numbered
        while numbered and not self._active.closing:
            event = numbered.popleft()
            self._budget.take(event)
            await self._work(deliver_in_pieces(self._active.stage, event))

    def _number_next(self) -> bool:
        """Number the events of a waiting command, or an elapsed deadline; return whether there was one.

        The time at which the server stored the command decides which of the two comes first.
        """
        if self._active.closing:
            return False
        due = self._elapsed_deadline()
        if self.inbox.obey_next(self._active, self._heed, due):
            return True
        return self._rest.fire() if due is not None else self._rest.keep_budget()

    def _elapsed_deadline(self) -> dt.datetime | None:
        """The earliest open deadline, if it has elapsed before the next waiting command was stored."""
        return self._rest.elapsed_deadline(self.inbox.stored)

    async def _append(self) -> None:
        """Append numbered events, in one batch if possible, and start their effects."""
        self._rest.over()
        await self._enclose(self._runlog.queue[0].event)
        for queued in await self._runlog.append_queued(self._goes_alone):
            self._follow(queued.event)
        self.inbox.dismiss()
        settled = not self._runlog.queue and not self._runlog.numbered and not self._active.closing
        if self._services.always_replay and settled:
            await self._forget_and_replay()

    def _goes_alone(self, event: Event) -> bool:
        """Whether an event is stored in a batch without other events.

        No event may follow it, or a message to another run is stored with it.
        """
        return event.type == ev.RunParked.type or self._children.concerns(event) or self._kin.concerns(event)

    def _heed(self, command: Command) -> bool:
        """Process a message from the parent or a child; return False if it no longer matters."""
        return self._reports.look_at(command) if command.verb == "wake" else self._kin.heed(command)

    async def _enclose(self, event: Event) -> None:
        """Add messages to the parent or to children that belong to an event to the event's batch."""
        messages = self._kin.run_messages(event)
        if (message := await self._children.run_message(event)) is not None:
            messages.append(message)
        if messages:
            self._runlog.queue[0].beside = messages[0] if len(messages) == 1 else RunMessages(tuple(messages))

    def _follow(self, event: Event) -> None:
        """Act on an acknowledged event: acknowledge the command it records, hand its effect to a node actor."""
        self.inbox.acknowledge_for(event)
        self._flight.follow(event)
        if event.type == ev.RunEnd.type:
            self._ending = "ended"
        elif event.type == ev.RunParked.type:
            self._ending = "parked"

    async def _work(self, pieces: Iterator[Computation | None]) -> None:
        """Run the interpreter piece by piece."""
        with self._guard():
            self._long = await self._services.pace.work(pieces, of=self.ref.run, long=self._long)

    @contextmanager
    def _guard(self) -> Generator[None]:
        """Close the run when its interpreter has ended or has failed unexpectedly."""
        try:
            yield
            self._active.closing = conclude(self._active.stage)
        except ReplayDiverged as error:
            self._end_diverged(error)
        except Exception as error:
            log.exception("interpreter failed", run=self.ref.run)
            conclude_failed(self._active.stage, unexpected_failure(error))
            self._active.closing = True

    def _verify_replayed(self) -> None:
        """Check that a replay has reached every recorded event."""
        if not self._active.closing:
            try:
                self._active.stage.ledger.verify_replayed()
            except ReplayDiverged as error:
                self._end_diverged(error)

    def _end_diverged(self, error: ReplayDiverged) -> None:
        """End the run if its definition itself is nondeterministic.

        :raises ReplayDiverged: if another version may be able to replay the run
        """
        code = self._admission.plan.diverged
        if not code or self._active.closing:
            raise error
        log.error("a definition behaves differently in a replay", run=self.ref.run, why=str(error))
        details = {"event": error.n, **msgspec.to_builtins(error.difference)}
        message = f"the code behaves differently in a replay: {error.message}"
        conclude_diverged(self._active.stage, Failure(code, message, details=details))
        self._active.closing = True

    def _task_failed(self, name: str, error: Exception) -> None:
        log.error("actor failed", run=self.ref.run, actor=name, exc_info=error)
        self._flight.lost(name, error)


class LiveSink:
    """The ledger's `Sink` of an active run: numbers stated events, which the run's loop appends."""

    def __init__(self, runlog: RunLog, flight: InFlight) -> None:
        self._flight = flight
        # Called for every event, so the methods are bound directly.
        self.seal: Callable[[Payload], bytes] = runlog.seal
        self.write: Callable[[str, bytes, str, int, int, str, str], Event] = runlog.write
        self.clock: Callable[[], dt.datetime] = runlog.clock

    def abandon(self, key: str) -> None:
        self._flight.abandon(key)

    def close_toolbox(self, key: str) -> None:
        self._flight.close_toolbox(key)


def _nothing() -> None:
    """Used instead of dropping an interpreter before one exists."""
