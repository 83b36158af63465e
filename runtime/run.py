"""The run actor: one per active run. Claims the run, replays it, drives its interpreter, records what happens.

It has one loop: append the numbered events; when they are acknowledged, let their consequences follow (an intent is
handed to its node's actor, an outcome is delivered to the interpreter); when nothing is left to append, look at
commands and deadlines; when nothing is left to do here at all, park. Child runs that have ended wake it
(`callboard.runtime.offspring`).

Consumes: start, alarm, wake, cancel, kill, pause, resume, answer, signal
Emits: run.claimed, run.start, run.parked, timer.fired
"""

import datetime as dt
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import anyio
import anyio.lowlevel
import msgspec
import structlog

from callboard.actors.actor import Supervisor
from callboard.actors.carrier import Carrier, Job
from callboard.actors.node import NodeActor, failed
from callboard.bus import events as ev
from callboard.bus.commands import Wake
from callboard.bus.effects import Failure, digest
from callboard.bus.errors import CallboardError, ReplayDiverged, RunLost
from callboard.bus.events import Event, Payload
from callboard.bus.log import Alarm, EventLog, Recorded, readable
from callboard.bus.subjects import RunRef, partition_of
from callboard.languages.language import Language
from callboard.runtime.conversation import Memory, model_turn
from callboard.runtime.crew import Address, Crew
from callboard.runtime.ending import conclude, conclude_failed
from callboard.runtime.offspring import Children, Offspring
from callboard.runtime.pace import Pace
from callboard.runtime.replay import Admitted, admitted, build_stage, delivering, replaying
from callboard.runtime.runlog import Clock, RunLog, events_of, read_run, utc_now
from callboard.runtime.stage import Stage
from callboard.runtime.telling import reactions

log = structlog.get_logger(__name__)

QUEUED_PROGRESS_MAX = 1_000
"""Progress of tools is dropped while more events than this wait for their append."""

FRESH_EVENTS = 2
"""Events to be read of a run that nobody has claimed, and one more."""

Ending = Literal["ended", "parked", "drained", "finished_before", "claimed_before", "not_found", "quarantined"]


def _nothing() -> None:
    """Somebody else acknowledges."""


@dataclass(frozen=True, slots=True)
class Command:
    """A routed command. ``done`` acknowledges it: it is called when the command is recorded or has become pointless;
    ``again`` delivers it anew, if the actor ended without having looked at it."""

    sequence: int
    verb: str
    body: bytes
    done: Callable[[], None] = _nothing
    again: Callable[[], None] = _nothing


class Company(Protocol):
    """What a worker lends its runs."""

    worker: str
    partitions: int
    effects: anyio.CapacityLimiter
    pace: Pace
    park_linger_s: float
    inline_bytes_max: int
    always_replay: bool
    """Whether runs are replayed after every outcome, as a test of replay itself."""

    @property
    def children(self) -> Children:
        """The door through which child runs come."""
        ...

    def language(self, name: str) -> Language[Any]:
        """Find a language by its name."""
        ...

    def environment(self, admission: Admitted) -> dict[str, Any]:
        """What is recorded of this worker at ``run.start``: versions, available skills, default model."""
        ...

    def secrets(self, admission: Admitted) -> dict[str, str]:
        """Values that must not be recorded, by name."""
        ...

    def carrier(self, ref: RunRef, admission: Admitted) -> Carrier:
        """Make what carries this run's effects out."""
        ...


class RunActor:
    """One activation of a run, from its claim until it parks, ends or is lost."""

    def __init__(
        self,
        ref: RunRef,
        log: EventLog,
        company: Company,
        clock: Clock = utc_now,
        *,
        fresh: bool = False,
        activated_by: Command | None = None,
    ) -> None:
        self.ref = ref
        self._fresh = fresh
        self._activated_by = activated_by
        self.inbox: deque[Command] = deque()
        self._log = log
        self._company = company
        self._runlog = RunLog(log, ref, writer=company.worker, clock=clock, inline_bytes_max=company.inline_bytes_max)
        self._wake = anyio.Event()
        self._tasks = Supervisor(self._task_failed)
        spawn = self._tasks.spawn
        self._crew = Crew(lambda name: NodeActor(name, self._carrier, self, company.effects, spawn), spawn)
        self._causes: set[int] = set()
        self._recording: dict[int, Command] = {}
        self._carried: set[str] = set()
        self._carrying = False
        self._long = False
        self._closing = False
        self._ending: Ending | None = None
        self._draining = False
        self._lost_to: Event | None = None
        self._parked_n = 0
        self._carrier: Carrier
        self._offspring: Offspring
        self._drop_interpreter: Callable[[], None] = _nothing
        self._stage: Stage
        self._admission: Admitted

    # -- what others call ---------------------------------------------------------------------------------------------

    def tell(self, command: Command) -> None:
        """Leave a command; those that are still in `inbox` when the actor has ended were not looked at."""
        self.inbox.append(command)
        self._wake.set()

    def drain(self) -> None:
        """Start nothing more; end as soon as what is running has come to its outcome."""
        self._draining = True
        self._wake.set()

    def lose(self, event: Event) -> None:
        """The log holds this event of the run; stop at once if it follows a newer claim than ours."""
        if event.epoch > self._runlog.epoch > 0:
            self._lost_to = event
            self._wake.set()

    async def run(self) -> Ending:
        """Act until the run parks or ends, or `drain` lets it go.

        :raises RunLost: if another worker has taken the run
        :raises ReplayDiverged: if this version does not follow the run's log
        :raises LogUnreadable: if the run's log holds something that is no event
        :raises LogUnavailable: if the log does not answer
        :raises StoreFull: if it has no room
        """
        if self._draining:
            return "drained"
        # A fresh run has one event; one that is going on need not be read whole to be told from it.
        recorded = await read_run(self._log, self.ref, limit=FRESH_EVENTS if self._fresh else None)
        if not readable(recorded):
            return "not_found"
        if recorded[-1].event.type == ev.RunEnd.type:
            return "finished_before"
        if self._fresh and len(recorded) > 1:
            return "claimed_before"
        if self._activated_before(recorded):
            return "parked"
        claim = await self._claim(recorded)
        error: CallboardError | None = None
        async with self._tasks:
            try:
                await self._perform([*events_of(recorded), claim])
            except CallboardError as caught:
                # Raised below: a task group would wrap it.
                error = caught
            finally:
                self._tasks.stop_all()
                self._drop_interpreter()
        if error is not None:
            raise error
        assert self._ending is not None
        return self._ending

    def _activated_before(self, recorded: list[Recorded]) -> bool:
        """Whether the command that activates the run had done so before, and the run has been parked since.

        Whoever parked it acknowledges that command; nobody would miss a worker that now took the run up and died.
        """
        last, by = recorded[-1], self._activated_by
        if by is None or last.event.type != ev.RunParked.type:
            return False
        if by.verb in ("start", "alarm"):
            return by.sequence < last.sequence
        return any(item.event.cause == by.sequence for item in recorded)

    # -- claim and replay ---------------------------------------------------------------------------------------------

    async def _claim(self, recorded: list[Recorded]) -> Event:
        for item in recorded:
            self._causes.add(item.event.cause)
            self._runlog.know_blobs(item.event.blobs)
        self._runlog.continue_from(recorded[-1])
        self._runlog.epoch += 1
        claim = self._runlog.state(ev.RunClaimed(worker=self._company.worker, epoch=self._runlog.epoch))
        await self._runlog.append_queued()
        return claim

    async def _perform(self, events: list[Event]) -> None:
        admission = admitted(events[0], self._company.language)
        self._runlog.keep_secret(self._company.secrets(admission))
        self._carrier = self._company.carrier(self.ref, admission)
        if not any(event.type == ev.RunStart.type for event in events):
            events.append(await self._start(admission))
        self._admission = admission
        self._offspring = Offspring(
            self.ref,
            admission,
            self._log,
            self._company.children,
            keeper=self,
            spawn=self._tasks.spawn,
            epoch=self._runlog.epoch,
        )
        self._parked_n = max((event.n for event in events if event.type == ev.RunParked.type), default=0)
        await self._work(self._replaying(events))
        self._stage.verify_replayed()
        await self._live()

    def _replaying(self, events: list[Event]) -> Iterator[None]:
        """Put a new interpreter in place and bring it to where the log ends."""
        self._drop_interpreter()
        stage, started = build_stage(self._admission, self.ref, events, self, self._company.pace.pressed)
        self._stage = stage
        self._drop_interpreter = stage.driver.drop
        return replaying(stage, self._admission, started, events)

    async def _forget_and_replay(self) -> None:
        """Forget what the interpreter was at and bring it back from the log, as another worker would."""
        events = events_of(readable(await read_run(self._log, self.ref)))
        if self._runlog.queue or not events or events[-1].n != self._runlog.n:
            # An outcome has come in meanwhile, or the replica that was read lags; there will be another occasion.
            return
        # In one go: an outcome that comes in is for an interpreter that has asked for it.
        with self._guard():
            for _ in self._replaying(events):
                pass
        self._stage.verify_replayed()

    async def _start(self, admission: Admitted) -> Event:
        plan = admission.plan
        start = ev.RunStart(
            workflow=plan.definition.name,
            input=plan.input,
            arguments=plan.arguments,
            options=plan.options,
            execution_id=self.ref.run,
            environment=self._company.environment(admission),
        )
        event = self._runlog.state(start)
        await self._runlog.append_queued()
        return event

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        idle_since: float | None = None
        while True:
            while self._runlog.queue:
                idle_since = None
                await self._enclose(self._runlog.queue[0].event)
                for queued in await self._runlog.append_queued(self._goes_alone):
                    await self._follow(queued.event)
                if self._ending is not None:
                    return
                if self._company.always_replay and not self._runlog.queue and not self._closing:
                    await self._forget_and_replay()
            if self._lost_to is not None:
                raise RunLost(self.ref, self._runlog.n + 1, self._lost_to)
            if self.inbox:
                self._obey(self.inbox.popleft())
                continue
            if self._draining and not self._carried:
                self._ending = "drained"
                return
            if self._fire():
                continue
            if not self._carrying:
                # Only now that every waiting command and elapsed deadline is recorded are open effects carried out.
                self._carrying = True
                for key in list(self._stage.open):
                    self._carry(key)
                    # Mailboxes are bounded: let their actors read.
                    await anyio.lowlevel.checkpoint()
                continue
            if self._wake.is_set():
                self._wake = anyio.Event()
            if not self._everything_far_away():
                await self._rest(None)
                continue
            now = anyio.current_time()
            idle_since = now if idle_since is None else idle_since
            linger = idle_since + self._company.park_linger_s - now
            if linger > 0:
                await self._rest(linger)
            elif not self._park():
                await self._rest(None)

    def _goes_alone(self, event: Event) -> bool:
        """Whether an event is not stored together with others: nothing may follow it, or a letter goes with it."""
        return event.type == ev.RunParked.type or self._offspring.concerns(event)

    async def _enclose(self, event: Event) -> None:
        """See to it that what an event means for another run is stored together with the event."""
        letter = await self._offspring.letter(event)
        if letter is not None:
            self._runlog.queue[0].beside = letter

    async def _rest(self, at_most_s: float | None) -> None:
        """Wait for something to happen, for the next deadline, or for so many seconds."""
        deadline = self._stage.next_deadline()
        if deadline is not None:
            until = max(0.0, (deadline[0] - self.clock()).total_seconds())
            at_most_s = until if at_most_s is None else min(until, at_most_s)
        if at_most_s is None:
            await self._wake.wait()
        else:
            with anyio.move_on_after(at_most_s):
                await self._wake.wait()

    async def _follow(self, event: Event) -> None:
        """An event is in the log: let its consequence follow."""
        command = self._recording.pop(event.n, None)
        if command is not None:
            command.done()
        kind = ev.TYPES[event.type]
        if kind is ev.RunEnd:
            self._ending = "ended"
        elif kind is ev.RunParked:
            self._ending = "parked"
        elif kind is ev.NodeEnter:
            self._crew.call((event.path, event.iteration))
        elif kind is ev.NodeExit:
            self._crew.leave((event.path, event.iteration))
        elif kind.kind == "intent" and self._carrying:
            self._carry(event.key)
        if not self._closing:
            await self._work(delivering(self._stage, event))

    async def _work(self, pieces: Iterator[None]) -> None:
        """Let the interpreter go on, piece by piece."""
        with self._guard():
            self._long = await self._company.pace.work(pieces, long=self._long)

    @contextmanager
    def _guard(self) -> Generator[None]:
        """Close the run when its interpreter has come to its end, or fails as it never should."""
        try:
            yield
        except ReplayDiverged:
            raise
        except Exception as error:
            log.exception("interpreter failed", run=self.ref.run)
            conclude_failed(self._stage, Failure(code="internal", message=f"{type(error).__name__}: {error}"))
            self._closing = True
        else:
            self._closing = conclude(self._stage)

    # -- deadlines and parking ----------------------------------------------------------------------------------------

    def _fire(self) -> bool:
        """Record the earliest deadline if it has passed; one at a time, since it may move the others."""
        deadline = self._stage.next_deadline()
        if deadline is None or deadline[0] > self.clock():
            return False
        due, key = deadline
        self.outcome(key, ev.TimerFired(due=due))
        return True

    def _everything_far_away(self) -> bool:
        """Whether nothing that the run waits for is being done by this worker."""
        return all(
            _far_away(effect.intent) or self._offspring.far_away(key) for key, effect in self._stage.open.items()
        )

    def _park(self) -> bool:
        """Park the run, unless its next deadline is too near to be worth it."""
        deadline = self._stage.next_deadline()
        due = deadline[0] if deadline is not None else None
        if due is not None and (due - self.clock()).total_seconds() <= self._company.park_linger_s:
            return False
        self._runlog.state(ev.RunParked(awaits=self._stage.awaits(), deadline=due))
        if due is not None:
            self._runlog.queue[-1].beside = Alarm(due, partition_of(self.ref, self._company.partitions))
        return True

    # -- commands -----------------------------------------------------------------------------------------------------

    def _obey(self, command: Command) -> None:
        if command.verb in ("start", "alarm") or command.sequence in self._causes:
            # It was there to wake the run, or is recorded already.
            command.done()
            return
        if command.verb == "wake":
            self._look_at_child(command)
            return
        self._causes.add(command.sequence)
        event: Event | None = None
        found = reactions(self._stage, command.verb, command.body)
        for reaction in found:
            node = self._stage.address_of(reaction.key)
            # A crash between two events of a command must not make it look done: only the last names it.
            cause = command.sequence if reaction is found[-1] else 0
            event = self._runlog.state(reaction.payload, key=reaction.key, cause=cause, node=node)
            if reaction.key:
                self._stage.close_by_runtime(reaction.key, event)
        assert event is not None
        self._recording[event.n] = command

    # -- node actors --------------------------------------------------------------------------------------------------

    def _carry(self, key: str) -> None:
        """Hand an open effect to its node's actor, once."""
        effect = self._stage.open.get(key)
        if effect is None or not self._stage.is_open(key):
            return
        if _far_away(effect.intent) or key in self._carried or self._draining:
            return
        self._carried.add(key)
        if isinstance(effect.intent, ev.ChildStart):
            # Whoever has parked had begun all children by then.
            self._offspring.begin(key, effect.intent, known=effect.event.n < self._parked_n)
            return
        idempotency_key = digest(self.ref.run, key)
        is_turn = isinstance(effect.intent, ev.ModelCall)
        job = Job(
            ref=self.ref,
            event=effect.event,
            intent=effect.intent,
            idempotency_key=idempotency_key,
            node=effect.node.name,
            ordinal=effect.ordinal,
            turn=model_turn(effect, self._memory(), idempotency_key) if is_turn else None,
            toolboxes=dict(effect.node.toolboxes),
        )
        self._crew.call((effect.node.path, effect.node.iteration)).take(job)

    def _memory(self) -> Memory:
        return Memory(self._stage.exits, self._stage.told)

    def _task_failed(self, name: str, error: Exception) -> None:
        """If a node actor died, its effects fail, and the interpreter decides what that means.

        What else runs here are those who begin and watch children: without them the run could wait for ever.
        """
        log.error("actor failed", run=self.ref.run, actor=name, exc_info=error)
        address = self._crew.lost(name)
        if address is None:
            raise error
        failure = Failure(code="internal", message=f"{type(error).__name__}: {error}")
        for key, effect in list(self._stage.open.items()):
            if key in self._carried and (effect.node.path, effect.node.iteration) == address:
                self.outcome(key, failed(effect.intent, failure))

    # -- child runs: `callboard.runtime.offspring.Keeper` -------------------------------------------------------------

    def _look_at_child(self, command: Command) -> None:
        try:
            key = msgspec.json.decode(command.body, type=Wake).key
        except msgspec.DecodeError:
            # Not from a run: it has nothing to tell.
            command.done()
            return
        effect = self._stage.open.get(key)
        if effect is None or not isinstance(effect.intent, ev.ChildStart) or not self._stage.is_open(key):
            # Nobody waits for that child any more.
            command.done()
        else:
            self._offspring.wake(key, command)

    @property
    def killed(self) -> bool:
        return self._stage.killed is not None

    def child_id(self, key: str) -> str:
        return self._stage.child_id(key)

    def child_begun(self, key: str) -> None:
        self._carried.discard(key)
        self._wake.set()

    def child_ended(self, key: str, end: ev.ChildEnd, wake: Command | None = None) -> None:
        n = self._runlog.n
        self.outcome(key, end, cause=wake.sequence if wake is not None else 0)
        if wake is None:
            return
        if self._runlog.n == n:
            # Too late: it is done with when what made it so has been appended, which is when commands are looked at.
            self.tell(wake)
        else:
            self._causes.add(wake.sequence)
            self._recording[self._runlog.n] = wake

    # -- `callboard.actors.node.Publisher` ----------------------------------------------------------------------------

    def outcome(self, key: str, payload: Payload, cause: int = 0) -> None:
        if self._closing or not self._stage.is_open(key):
            return
        event = self._runlog.state(payload, key=key, cause=cause, node=self._stage.address_of(key))
        self._stage.close_by_runtime(key, event)
        self._carried.discard(key)
        self._leave_unentered((event.path, event.iteration))
        self._wake.set()

    def _leave_unentered(self, address: Address) -> None:
        """Let an actor go that was called for one effect: after its node's exit, or of a place that is no node."""
        if address[0] and address not in self._stage.entered:
            self._crew.leave(address)

    def aside(self, key: str, payload: Payload) -> None:
        if self._closing or not self._stage.is_open(key) or len(self._runlog.queue) > QUEUED_PROGRESS_MAX:
            return
        self._runlog.state(payload, key=key, node=self._stage.address_of(key))
        self._wake.set()

    # -- `callboard.runtime.stage.Sink` -------------------------------------------------------------------------------

    def seal(self, payload: Payload) -> bytes:
        return self._runlog.seal(payload)

    def write(self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str) -> Event:
        return self._runlog.write(event_type, payload, path, iteration, attempt, key)

    def clock(self) -> dt.datetime:
        return self._runlog.clock()

    def abandon(self, key: str) -> None:
        self._carried.discard(key)
        self._leave_unentered(self._crew.abandon(key))

    def close_toolbox(self, key: str) -> None:
        self._crew.close_toolbox(key)


def _far_away(intent: Payload) -> bool:
    """Whether an effect is somebody else's to finish: the clock's, a person's, another program's."""
    match intent:
        case ev.TimerSet() | ev.SignalAwaited() | ev.RunPaused():
            return True
        case ev.ToolCall(via=via):
            return via == "caller"
        case _:
            return False
