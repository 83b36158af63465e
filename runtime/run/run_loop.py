"""The loop of an active run: drives the run's interpreter, and records what follows, until the run parks or ends.

Numbered events are delivered to the interpreter in order. The events that the interpreter states in response, commands
and elapsed deadlines are numbered next, and all of them are appended in one batch. Once the batch is acknowledged, it
takes effect outside: intents are handed to their node actors, and commands are acknowledged. So an outcome is stored
together with its consequences, and no effect begins before its intent is in the log. When nothing is left to do at this
worker, the run parks.

Its parts are `inbox` (commands), `in_flight` (effects), `rest` (deadlines and parking), `children` (child runs) and
`child_budgets` (the usage of child runs).

Emits: run.released
"""

import datetime as dt
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice

import msgspec
import structlog
from anyio.lowlevel import checkpoint

from callboard.actors.actor import Supervisor
from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import CallboardError, ReplayDiverged, RunLost, unexpected_failure
from callboard.bus.events import Event, Payload
from callboard.bus.log.port import ROOM_PATIENCE_S, EventLog, NoAnswer, Purged, RunMessage, RunMessages, SuccessorStart
from callboard.bus.log.recorded import readable
from callboard.bus.tracecontext import sent_as, within
from callboard.languages.language import End, Ok
from callboard.lib.foreign_errors import is_foreign
from callboard.projections.run.span_ids import ids_of
from callboard.runtime.interpreter.computation import Computation
from callboard.runtime.interpreter.replay import Admitted, build_stage, replay_in_pieces, start_of, take_in_pieces
from callboard.runtime.interpreter.run_end import conclude, conclude_diverged, conclude_failed, verify_replayed
from callboard.runtime.run.activation import Activation, ActivationEnd, Command, RunServices
from callboard.runtime.run.budget import RunBudget
from callboard.runtime.run.child_budgets import CONCERN_FAMILY, ChildBudgets
from callboard.runtime.run.children import CONCERN_RUNS, ChildRuns
from callboard.runtime.run.claim_check import ClaimCheck
from callboard.runtime.run.crashes import count_failed_tries
from callboard.runtime.run.divergence import verify_end
from callboard.runtime.run.in_flight import FOLLOWED, InFlight
from callboard.runtime.run.inbox import Inbox
from callboard.runtime.run.log import AT_ONCE_BYTES_MAX, RunLog, events_of, read_run
from callboard.runtime.run.new_run import NewRun
from callboard.runtime.run.rest import Rest

log = structlog.get_logger(__name__)

MAY_GO_ALONE = frozenset({ev.RunParked.type, *CONCERN_FAMILY, *CONCERN_RUNS})
"""Events that may be stored in a batch without other events."""


class RunLoop:
    """The loop of one activation that has claimed its run."""

    def __init__(
        self,
        active: Activation,
        services: RunServices,
        inbox: Inbox,
        check: ClaimCheck,
        log: EventLog,
        admission: Admitted,
        events: list[Event],
        new: NewRun | None = None,
    ) -> None:
        """Create the loop of a run with the given ``events``, the last of which are not appended yet.

        ``new`` is notified when the first event of a new run is stored.
        """
        self._active = active
        self._services = services
        self._inbox = inbox
        self._check = check
        self._log = log
        self._admitted = admission
        self._events = events
        self._new = new
        self._ending: ActivationEnd | None = None
        self._released = False
        self._long = False
        claims = [event for event in events if event.type == ev.RunClaimed.type]
        self._performed_here = len(claims) < 2 or _worker_of(claims[-2]) == services.worker
        """Whether what the log records was performed by this process, as far as the run got last."""
        self._drop_stage: Callable[[], None] | None = None
        self._tasks = Supervisor(self._task_failed)
        runlog, accepted = active.runlog, admission.accepted
        parked_n = max((event.n for event in events if event.type == ev.RunParked.type), default=0)
        shared_n = accepted.forked_from.n if accepted.forked_from is not None else 0
        if parked_n <= shared_n:
            parked_n = 0  # The origin has begun the effects that were open then; the fork has not.
        self._ids = ids_of(accepted)
        self._budget = RunBudget(accepted.limits, services.prices, shared_n)
        self._child_budgets = ChildBudgets(runlog, self._budget, inbox, accepted.parent)
        self._children = ChildRuns(
            active.ref,
            admission,
            log,
            services.children,
            self._tasks.spawn,
            epoch=runlog.epoch,
            counts=self._child_budgets.counts,
            key=runlog.key,
        )
        self._flight = InFlight(
            active,
            inbox,
            services.carrier(active.ref, admission, runlog.keep),
            services.effects,
            self._children,
            self._tasks.spawn,
            self._budget,
            services.pace.is_pressed,
            parked_n=parked_n,
            ids=self._ids,
            crashes=check.crashes,
            tried=count_failed_tries(events, shared_n),
        )
        for event in events:
            self._budget.take(event)
        # Messages that belong to a recorded event were stored in one batch with it.
        self._budget.releasing.clear()
        self._rest = Rest(active, services, self._flight, self._budget)

    async def perform(self) -> ActivationEnd:
        """Replay the run, and perform it until it parks or ends, or until the worker releases it.

        Raises as `callboard.runtime.run.actor.RunActor.run`.

        :raises Purged: if a new run has the id of a run that was purged
        """
        error: CallboardError | NoAnswer | Purged | None = None
        ids, run = self._ids, self._active.ref.run
        # Log messages belong to the run's root span. Only effects pass their trace context on.
        with within(sent_as(ids.trace(run), ids.span(run), told=False)):
            async with self._tasks:
                try:
                    await self._replay()
                    await self._live()
                except (CallboardError, NoAnswer, Purged) as caught:
                    # Raised below: a task group would wrap it.
                    error = caught
                finally:
                    self._tasks.stop_all()
                    self._drop()
        if error is not None:
            raise error
        assert self._ending is not None
        return self._ending

    # -- replay -------------------------------------------------------------------------------------------------------

    async def _replay(self) -> None:
        """Create the interpreter, and replay the run up to the last event."""
        if len(self._events[0].payload) > AT_ONCE_BYTES_MAX:
            # A large start takes long to read; other runs continue in between.
            await checkpoint()
        # A replay delivers the recorded events; only events that it states beyond them are still to be delivered.
        self._active.runlog.numbered.clear()
        await self._begin_turn(self._replaying(self._events, await self._read_start(self._events)))
        # While the run is active, its log is not needed in memory.
        self._events.clear()
        self._verify_replayed()
        self._performed_here = True

    async def _begin_turn(self, pieces: Iterator[Computation | None]) -> None:
        """Run the interpreter up to the last event. If that takes long, a new run is stored before."""
        if self._new is not None:
            await self._work(islice(pieces, 1))
            if self._active.closing:
                return
            if self._active.stage.is_unfinished:
                await self._store()
        await self._work(pieces)

    async def _read_start(self, events: list[Event]) -> ev.RunStart:
        """Read the run's ``run.start``, on a thread if it is large."""
        if sum(len(event.payload) for event in events if event.type == ev.RunStart.type) <= AT_ONCE_BYTES_MAX:
            return start_of(events)
        reading = Computation(lambda: start_of(events))
        await self._services.pace.beside(reading.carry_out)
        return reading.outcome()

    def _replaying(self, events: list[Event], start: ev.RunStart | None = None) -> Iterator[Computation | None]:
        """Create a new interpreter and replay it to the end of the log."""
        self._drop()
        sink = LiveSink(self._active.runlog, self._flight)
        stage, started = build_stage(
            self._admitted, self._active.ref, events, sink, self._services.pace.is_pressed, start
        )
        self._active.stage = stage
        self._drop_stage = stage.drop
        return replay_in_pieces(stage, self._admitted, started, events)

    async def _forget_and_replay(self) -> None:
        """Replace the interpreter by one that is replayed from the log, as another worker would do."""
        events = events_of(readable(await read_run(self._log, self._active.ref)))
        if self._active.runlog.queue or not events or events[-1].n != self._active.runlog.n:
            # A new outcome has arrived, or the replica that was read lags; a later append tries again.
            return
        # Without a pause: an outcome that arrives needs an interpreter that has announced its effect.
        with self._guard():
            for _ in self._replaying(events):
                pass
        self._verify_replayed()

    def _drop(self) -> None:
        """Drop the interpreter, if there is one."""
        if self._drop_stage is not None:
            self._drop_stage()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while self._ending is None:
            await self._deliver_numbered()
            if self._active.lost_to is not None:
                raise RunLost(self._active.ref, self._active.runlog.n + 1, self._active.lost_to)
            if self._check.on_probation and not self._flight.suspects:
                self._check.leave_probation()
            busy = bool(self._flight) and not self._release()
            idle = not self._active.runlog.queue and self._active.draining and not busy
            if not idle and self._number_next():
                continue
            if self._active.runlog.queue:
                await self._append()
            elif self._inbox.pointless:
                await self._dismiss()
            elif idle:
                self._ending = ActivationEnd.DRAINED
            elif (due := self._elapsed_deadline()) is not None:
                await self._rest.look(due, self._inbox.heard)
            elif not await self._flight.begin():
                await self._rest.wait()

    def _release(self) -> bool:
        """Record that running effects are stopped, if the worker shuts down; return whether it does."""
        if self._active.releasing and not self._released and not self._active.closing:
            self._released = True
            self._active.runlog.state(ev.RunReleased(worker=self._services.worker))
        return self._released

    async def _dismiss(self) -> None:
        """Acknowledge pointless commands, if this worker still has the run.

        :raises RunLost: if another worker has taken the run
        :raises NoAnswer: if the log does not answer
        """
        last = await self._log.last(self._active.ref)
        if last is not None and last.event.epoch > self._active.runlog.epoch:
            raise RunLost(self._active.ref, self._active.runlog.n + 1, last.event)
        self._inbox.dismiss()

    async def _deliver_numbered(self) -> None:
        """Deliver numbered events to the interpreter in order, whether or not they are acknowledged."""
        numbered = self._active.runlog.numbered
        while numbered and not self._active.closing:
            event = numbered.popleft()
            self._budget.take(event)
            if self._active.stage.note(event):
                await self._work(take_in_pieces(self._active.stage, event))

    def _number_next(self) -> bool:
        """Number the events of a waiting command, or an elapsed deadline; return whether there was one.

        The time at which the server stored the command decides which of the two comes first.
        """
        if self._active.closing:
            return False
        due = self._elapsed_deadline()
        if self._inbox.obey_next(self._active.stage, self._active.runlog, self._heed, due):
            return True
        return self._rest.fire() if due is not None else self._rest.keep_budget()

    def _elapsed_deadline(self) -> dt.datetime | None:
        """The earliest open deadline, if it has elapsed before the next waiting command was stored."""
        return self._rest.elapsed_deadline(self._inbox.stored_at)

    async def _append(self) -> None:
        """Append numbered events, in one batch if possible, and start their effects."""
        self._rest.over()
        await self._store()
        self._inbox.dismiss()
        settled = not self._active.runlog.queue and not self._active.runlog.numbered and not self._active.closing
        if self._services.always_replay and settled:
            await self._forget_and_replay()

    async def _store(self) -> None:
        """Append the oldest numbered events in one batch, and act on them."""
        await self._enclose(self._active.runlog.queue[0].event)
        stored = await self._active.runlog.append_queued(self._goes_alone)
        if self._new is not None:
            self._note_stored(self._new)
            self._new = None
        for queued in stored:
            self._follow(queued.event)

    def _note_stored(self, new: NewRun) -> None:
        """Note that the first events of a new run are stored. The command that activates it comes after them."""
        runlog, heard = self._active.runlog, self._inbox.heard
        runlog.room_patience_s = ROOM_PATIENCE_S
        heard.note(runlog.sequence)
        heard.tells = runlog.sequence
        new.note_stored()

    def _goes_alone(self, event: Event) -> bool:
        """Whether an event is stored in a batch without other events.

        No event may follow it, or a message to another run is stored with it.
        """
        if event.type not in MAY_GO_ALONE:
            return False
        return event.type == ev.RunParked.type or self._children.concerns(event) or self._child_budgets.concerns(event)

    def _heed(self, command: Command) -> bool:
        """Process a message from the parent or a child; return False if it no longer matters."""
        if command.verb == "wake":
            return self._flight.check_child(command)
        return self._child_budgets.heed(self._active.stage, command)

    async def _enclose(self, event: Event) -> None:
        """Add messages to the parent or to children that belong to an event to the event's batch."""
        if event.type not in MAY_GO_ALONE:
            return
        messages: list[RunMessage | SuccessorStart] = [*self._child_budgets.run_messages(event)]
        killed = self._active.stage.killed is not None
        if (message := await self._children.run_message(event, killed=killed)) is not None:
            messages.append(message)
        if messages:
            self._active.runlog.queue[0].beside = messages[0] if len(messages) == 1 else RunMessages(tuple(messages))

    def _follow(self, event: Event) -> None:
        """Act on an acknowledged event: acknowledge the command it records, hand its effect to a node actor."""
        if self._inbox.awaiting:
            self._inbox.acknowledge_for(event)
        if event.type in FOLLOWED or self._flight.afterwards:
            self._flight.follow(event)
        if event.type == ev.RunEnd.type:
            self._ending = ActivationEnd.ENDED
        elif event.type == ev.RunParked.type:
            self._ending = ActivationEnd.PARKED

    async def _work(self, pieces: Iterator[Computation | None]) -> None:
        """Run the interpreter piece by piece."""
        with self._guard():
            self._long = await self._services.pace.work(pieces, of=self._active.ref.run, long=self._long)
            if self._services.always_replay and self._admitted.plan.diverged and not self._active.closing:
                await self._verify_end()

    def _find_end(self) -> Ok[End] | None:
        """Return the end of the interpreter, if it has one; None if the run was killed."""
        stage = self._active.stage
        settled = stage.main.settled if stage.main is not None and stage.killed is None else None
        return settled if isinstance(settled, Ok) else None

    async def _verify_end(self) -> None:
        """Replay code that has ended, before its end is recorded; a run that never waits is replayed only here.

        :raises ReplayDiverged: if the replay differs
        """
        settled = self._find_end()
        if settled is None:
            return
        stored = events_of(readable(await read_run(self._log, self._active.ref)))
        events = [*stored, *(queued.event for queued in self._active.runlog.queue)]
        # A replica that lags lacks events: then the end is recorded without this check.
        if [event.n for event in events] == list(range(1, self._active.runlog.n + 1)):
            verify_end(self._services, self._admitted, self._active.ref, events, settled.value)

    @contextmanager
    def _guard(self) -> Generator[None]:
        """Close the run when its interpreter has ended or has failed unexpectedly."""
        try:
            yield
            if self._active.stage.is_unfinished:
                return  # More pieces of a new run's first turn follow.
            if self._admitted.plan.diverged and self._find_end() is not None:
                verify_replayed(self._active.stage, ends=True)
            self._active.closing = conclude(self._active.stage)
        except ReplayDiverged as error:
            self._end_diverged(error)
        except BaseException as error:
            if not is_foreign(error):
                raise
            log.exception("interpreter failed", run=self._active.ref.run)
            conclude_failed(self._active.stage, unexpected_failure(error))
            self._active.closing = True

    def _verify_replayed(self) -> None:
        """Check that a replay has reached every recorded event."""
        if not self._active.closing:
            try:
                verify_replayed(self._active.stage)
            except ReplayDiverged as error:
                self._end_diverged(error)

    def _end_diverged(self, error: ReplayDiverged) -> None:
        """End the run if its code has behaved differently twice in this process, where each run is replayed to find
        that out: in development and in tests. A run that is worth something waits for code that follows its log.

        :raises ReplayDiverged: if the run waits
        """
        code = self._admitted.plan.diverged
        tests = self._services.always_replay and self._performed_here
        if not code or not tests or self._active.closing:
            raise error
        log.error("a definition behaves differently in a replay", run=self._active.ref.run, why=str(error))
        details = {"event": error.n, **msgspec.to_builtins(error.difference)}
        message = f"the code behaves differently in a replay: {error.message}"
        conclude_diverged(self._active.stage, Failure(code, message, details=details))
        self._active.closing = True

    def _task_failed(self, name: str, error: Exception) -> None:
        log.error("actor failed", run=self._active.ref.run, actor=name, exc_info=error)
        self._flight.lost(name, error)


def _worker_of(claim: Event) -> str:
    payload = ev.payload_of(claim)
    assert isinstance(payload, ev.RunClaimed)
    return payload.worker


class LiveSink:
    """The ledger's `Sink` of an active run: numbers stated events, which the run's loop appends."""

    observes = False

    def __init__(self, runlog: RunLog, flight: InFlight) -> None:
        # The flight refers to the stage, and the stage to the sink.
        self._flight = weakref.proxy(flight)
        # Called for every event, so the methods are bound directly.
        self.seal: Callable[[Payload], bytes] = runlog.seal
        self.write: Callable[[str, bytes, str, int, int, str, str], Event] = runlog.write
        self.clock: Callable[[], dt.datetime] = runlog.clock

    def abandon(self, key: str) -> None:
        self._flight.abandon(key)

    def close_toolbox(self, key: str) -> None:
        self._flight.close_toolbox(key)
