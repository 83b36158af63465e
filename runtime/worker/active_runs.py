"""Active runs: hosts a worker's run actors, limits their number and keeps their activating commands unacknowledged."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import anyio.abc
import structlog
from msgspec import Struct, field

from callboard.actors.actor import Restart, Supervisor
from callboard.bus.errors import (
    CallboardError,
    KeyMissing,
    LogNewer,
    LogUnavailable,
    LogUnreadable,
    ReplayDiverged,
    RunLost,
    StoreFull,
)
from callboard.bus.events import Event
from callboard.bus.log.port import EventLog, NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef
from callboard.lib.backoff import backoff_s
from callboard.runtime.run.activation import ActivationEnd, Command, RunServices
from callboard.runtime.run.actor import RunActor
from callboard.runtime.run.crashes import KeepsCrashing, NotYet, Probation
from callboard.runtime.run.divergence import quarantine, record_divergence
from callboard.runtime.run.inbox import ENDING, URGENT
from callboard.runtime.run.kill import end_killed
from callboard.runtime.run.new_run import NewRun

logger = structlog.get_logger(__name__)

CRASHED_RETRY_S = 30.0
CRASHED_RETRY_MAX_S = 3_600.0
"""First and longest delay before a run that could not be performed is offered to its partition's worker again."""

KEY_RETRY_S = 1.0
KEY_RETRY_MAX_S = 60.0
"""The same delays for a run that only lacks its encryption key."""

FULL_RETRY_S = 1.0
"""Delay before a command to a run with a full inbox is redelivered."""

ACTIVATING = frozenset({"start", "alarm"})
"""Commands that only activate a run and have no effect on an active one."""

RESTARTS = Restart(most=2, within_s=60.0, pause_s=0.2)
"""How often a run actor that failed unexpectedly replays its run before the command is given back."""


RELEASE_WAIT_S = 2.0
"""How long a worker that shuts down waits for its runs to record that their effects are stopped."""

QUARANTINE_TRIES = 8
"""Deliveries of a command after which a run whose actor always fails is quarantined."""

QUARANTINED = "the run is quarantined; `callboard kill` ends it"


class Hear(Protocol):
    """Called with each run that becomes active. A ``fresh`` run has not been performed before."""

    def __call__(self, ref: RunRef, *, fresh: bool) -> None: ...


def _hear_nothing(ref: RunRef, *, fresh: bool) -> None:
    """Used if no listener is registered."""


class CommandRouter(Protocol):
    """The worker's interface for its active runs: passes on commands that a run ended without processing."""

    def take(self, delivery: Delivery) -> None:
        """Pass a command on to its run, as if it had just arrived."""
        ...

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        """Find out from the log which worker has the run, and pass the command on."""
        ...

    def refuse(self, ref: RunRef, verb: str, code: str, message: str) -> None:
        """Publish that a command had no effect."""
        ...

    def pass_to_newer(self, deliveries: Sequence[Delivery]) -> bool:
        """Pass commands on to a worker of a newer version; return whether there is one."""
        ...


class _Hosted(Struct):
    """A run at this worker, and the deliveries that stay unacknowledged while it is active."""

    actor: RunActor
    held: list[Delivery] = field(default_factory=list[Delivery])
    urgent: anyio.Event = field(default_factory=anyio.Event)
    activating: Command | None = None
    quarantine_code: str = ""

    def stop(self, verbs: Collection[str]) -> Command | None:
        """Return the first command of these verbs that the actor has not taken."""
        waiting = [*([self.activating] if self.activating is not None else []), *self.actor.inbox.waiting]
        return next((command for command in waiting if command.verb in verbs), None)

    def left_behind(self, ending: ActivationEnd) -> bool:
        """Whether the run has ended before it recorded the command that activated it."""
        return ending == ActivationEnd.ENDED and self.activating in self.actor.inbox.waiting

    @property
    def deliveries(self) -> int:
        """The largest number of deliveries of one of its commands."""
        return max((delivery.deliveries for delivery in self.held), default=1)

    def give_back(self, delay_s: float) -> None:
        for delivery in self.held:
            delivery.nak(delay_s)


class Counts(Struct):
    """Counts of events at a worker since it started."""

    replays: int = 0
    divergences: int = 0


class ActiveRuns:
    """Hosts the runs of one worker."""

    def __init__(
        self, log: EventLog, services: RunServices, router: CommandRouter, *, ack_wait_s: float, runs_active_max: int
    ) -> None:
        self._log = log
        self._services = services
        self._router = router
        self._ack_wait_s = ack_wait_s
        self._slots = Slots(runs_active_max)
        self._hosted: dict[RunRef, _Hosted] = {}
        self._runs = Supervisor(lambda run, error: logger.error("run was dropped", run=run, exc_info=error))
        self._vacant = anyio.Event()
        self._probation = Probation()
        self.counts = Counts()
        self.hear: Hear = _hear_nothing
        self.closed = False
        """Whether the worker takes no further runs."""

    def __len__(self) -> int:
        return len(self._hosted)

    def __contains__(self, ref: RunRef) -> bool:
        return ref in self._hosted

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Host runs until cancelled, and keep the server from redelivering the commands that they hold."""
        async with self._runs:
            task_status.started()
            while True:
                await anyio.sleep(self._ack_wait_s / 3)
                for hosted in self._hosted.values():
                    for delivery in hosted.held:
                        delivery.hold()

    async def drain(self, patience_s: float) -> None:
        """Let running effects finish for up to ``patience_s`` seconds, then give the runs to other workers."""
        self.closed = True
        with anyio.move_on_after(patience_s):
            for hosted in list(self._hosted.values()):
                hosted.actor.drain()
            await self._vacate()
        with anyio.move_on_after(RELEASE_WAIT_S):
            for hosted in self._hosted.values():
                hosted.actor.release()
            await self._vacate()
        for hosted in self._hosted.values():
            hosted.give_back(0.0)

    async def _vacate(self) -> None:
        """Wait until no run is left here."""
        self._vacant = anyio.Event()
        if self._hosted:
            await self._vacant.wait()

    # -- commands -----------------------------------------------------------------------------------------------------

    def tell(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        """Pass a command on to a run at this worker."""
        hosted = self._hosted[ref]
        for i, held in enumerate(hosted.held):
            if held.sequence == delivery.sequence:
                # A redelivery of the command that keeps this run active: hold the newer delivery instead.
                hosted.held[i] = delivery
                return
        if verb in ACTIVATING:
            # While the run is active at this worker, the command needs no action.
            hosted.held.append(delivery)
            return
        if verb in URGENT:
            hosted.urgent.set()
        again = self._router.take
        command = Command(
            delivery.sequence, verb, delivery.data, delivery.ack, lambda: again(delivery), stored=delivery.stored_time
        )
        if not hosted.actor.tell(command):
            delivery.nak(FULL_RETRY_S)

    def activate(self, ref: RunRef, delivery: Delivery, verb: str, *, fresh: bool = False) -> None:
        """Make a run active; its activating command stays unacknowledged until the run parks or ends."""
        if self.closed:
            delivery.nak()
            return
        self.counts.replays += not fresh
        activating = Command(delivery.sequence, verb, delivery.data, stored=delivery.stored_time)
        actor = self._actor(ref, fresh=fresh, activated_by=activating)
        hosted = _Hosted(actor, [delivery])
        if verb not in ACTIVATING:
            # The run records the command without acknowledging it: this delivery is held while the run is active.
            hosted.activating = activating
            actor.tell(activating)
        if verb in URGENT:
            hosted.urgent.set()
        self.hear(ref, fresh=fresh)
        self._begin(ref, hosted)

    def begin(self, first: Recorded) -> None:
        """Activate a run that was just admitted here and has only its first event.

        Its routed command arrives later and is held then; if the run is over by that time, the command has no effect.
        """
        if not self.closed:
            self.hear(first.ref, fresh=True)
            self._begin(first.ref, _Hosted(self._actor(first.ref, first=first)))

    def begin_new(self, new: NewRun) -> bool:
        """Activate a run of which nothing is stored yet; return false if that has to wait.

        Its start would wait too, because the actor stores the first event.
        """
        if self.closed or len(self._hosted) >= self._slots.places:
            return False
        self.hear(new.ref, fresh=True)
        self._begin(new.ref, _Hosted(self._actor(new.ref, new=new)))
        return True

    def _actor(self, ref: RunRef, **how: Any) -> RunActor:
        return RunActor(ref, self._log, self._services, probation=self._probation, **how)

    def _begin(self, ref: RunRef, hosted: _Hosted) -> None:
        self._hosted[ref] = hosted
        self._runs.spawn(ref.run, lambda: self._host(ref, hosted))

    def lose(self, ref: RunRef, claim: Event) -> None:
        """Pass a claim from the log to a run's actor, which stops if the claim is newer than its own."""
        hosted = self._hosted.get(ref)
        if hosted is not None:
            hosted.actor.lose(claim)

    # -- one run ------------------------------------------------------------------------------------------------------

    async def _host(self, ref: RunRef, hosted: _Hosted) -> None:
        ending: ActivationEnd | None = None
        try:
            async with self._slots.one(hosted.urgent):
                with structlog.contextvars.bound_contextvars(run=ref.run), content_guard():
                    ending = await self._perform(ref, hosted)
        finally:
            del self._hosted[ref]
            if not self._hosted:
                self._vacant.set()
            if ending is not None:
                self._close_run(ref, hosted, ending)

    async def _perform(self, ref: RunRef, hosted: _Hosted) -> ActivationEnd | None:
        """Perform a run; None if the command that activated it has been given back."""
        try:
            return await self._act(ref, hosted)
        except RunLost as error:
            logger.info("run is another worker's", why=str(error))
            hosted.give_back(self._ack_wait_s)
        except (LogUnavailable, StoreFull, NoAnswer) as error:
            logger.warning("run is waiting for the log", why=str(error))
            hosted.give_back(1.0)
        except KeyMissing as error:
            logger.warning("run is waiting for its key", why=str(error))
            hosted.give_back(backoff_s(hosted.deliveries, KEY_RETRY_S, KEY_RETRY_MAX_S))
        except NotYet as error:
            logger.warning("run has to wait: workers crashed while they performed it", why=str(error))
            hosted.give_back(error.delay_s)
        except (LogUnreadable, KeepsCrashing) as error:
            return await self._quarantine(ref, hosted, error)
        except LogNewer as error:
            await self._record_divergence(ref, hosted, error, elsewhere=True)
        except CallboardError as error:
            await self._record_divergence(ref, hosted, error)
        except Exception as error:
            logger.error("run actor keeps failing", kind=type(error).__name__, error=str(error))
            if hosted.deliveries >= QUARANTINE_TRIES:
                return await self._quarantine(
                    ref, hosted, CallboardError("internal", f"{type(error).__name__}: {error}")
                )
            hosted.give_back(backoff_s(hosted.deliveries, CRASHED_RETRY_S, CRASHED_RETRY_MAX_S))
        return None

    async def _record_divergence(
        self, ref: RunRef, hosted: _Hosted, error: CallboardError, *, elsewhere: bool = False
    ) -> None:
        """Record that this version cannot continue the run. Its command is redelivered after a growing pause.

        If a newer version may continue the run ``elsewhere``, its worker gets the command at once, if there is one.
        """
        self.counts.divergences += isinstance(error, ReplayDiverged)
        try:
            # Each redelivery of the command tries again, and would log the same again.
            if await record_divergence(self._log, self._services, ref, error):
                logger.error("run cannot be performed by this version", code=error.code, error=str(error))
        except (CallboardError, NoAnswer) as unrecorded:
            logger.warning("divergence could not be recorded", error=str(unrecorded))
        if elsewhere and self._router.pass_to_newer(hosted.held):
            return
        hosted.give_back(backoff_s(hosted.deliveries, CRASHED_RETRY_S, CRASHED_RETRY_MAX_S))

    async def _quarantine(self, ref: RunRef, hosted: _Hosted, error: CallboardError) -> ActivationEnd | None:
        logger.error("run is quarantined", code=error.code, error=str(error))
        try:
            await quarantine(self._log, self._services, ref, error)
        except (CallboardError, NoAnswer) as unrecorded:
            logger.warning("run could not be quarantined", error=str(unrecorded))
            hosted.give_back(1.0)
            return None
        hosted.quarantine_code = error.code
        return ActivationEnd.QUARANTINED

    async def _act(self, ref: RunRef, hosted: _Hosted) -> ActivationEnd:
        """Let the actor perform the run. If it cannot, a kill still ends the run, and a cancellation a diverged run."""
        try:
            return await self._act_again(ref, hosted)
        except (RunLost, LogUnavailable, StoreFull, NoAnswer, NotYet):
            raise
        except Exception as error:
            # The clean-up of a diverged run cannot be performed, so a cancellation counts as a kill.
            if not await self._kill(ref, hosted, verbs=ENDING if _is_divergence(error) else ("kill",)):
                raise
            return ActivationEnd.ENDED

    async def _act_again(self, ref: RunRef, hosted: _Hosted) -> ActivationEnd:
        """Run the actor, and restart it after unexpected failures."""
        restarts = 0
        while True:
            try:
                return await hosted.actor.run()
            except (CallboardError, NoAnswer):
                raise
            except Exception:
                logger.exception("run actor failed", restart=restarts)
                if restarts == RESTARTS.most:
                    raise
            restarts += 1
            await anyio.sleep(RESTARTS.pause_s)
            self._renew(ref, hosted)

    def _renew(self, ref: RunRef, hosted: _Hosted) -> None:
        """Replace an actor that failed by a new one."""
        commands = hosted.actor.inbox.waiting
        hosted.actor = self._actor(ref)
        if self.closed:
            hosted.actor.drain()
        if hosted.activating is not None and hosted.activating not in commands:
            # The failed actor has taken the command; the new one finds in the log whether it is recorded.
            hosted.actor.inbox.waiting.append(hosted.activating)
        hosted.actor.inbox.waiting.extend(commands)

    async def _kill(self, ref: RunRef, hosted: _Hosted, *, verbs: Collection[str]) -> bool:
        """End a run without performing it, if a command of these verbs waits; return whether there is one."""
        kill = hosted.stop(verbs)
        if not await end_killed(self._log, self._services, ref, kill):
            return False
        if kill is not None:
            kill.done()
            if kill in hosted.actor.inbox.waiting:
                hosted.actor.inbox.waiting.remove(kill)
        return True

    def _close_run(self, ref: RunRef, hosted: _Hosted, ending: ActivationEnd) -> None:
        """Acknowledge the command of a run that is no longer active, and pass on commands that it did not process."""
        if ending == ActivationEnd.NOT_FOUND:
            # The command arrived before the replica that was read had the run.
            hosted.give_back(0.2)
            return
        if ending in (ActivationEnd.DRAINED, ActivationEnd.NOT_STORED):
            hosted.give_back(0.0)
            for command in hosted.actor.inbox.waiting:
                command.again()
            return
        activating, others = hosted.held[:1], hosted.held[1:]
        for delivery in activating:
            if ending == ActivationEnd.CLAIMED_BEFORE:
                self._router.seek_home(ref, delivery, "start")
            elif hosted.activating is not None and (
                ending == ActivationEnd.FINISHED_BEFORE or hosted.left_behind(ending)
            ):
                self._router.seek_home(ref, delivery, hosted.activating.verb)
            else:
                delivery.ack()
        over = ending in (ActivationEnd.ENDED, ActivationEnd.FINISHED_BEFORE)
        parked_at = hosted.actor.sequence if ending == ActivationEnd.PARKED else 0
        for delivery in others:
            if over or delivery.sequence < parked_at:
                delivery.ack()
            else:
                # The first command had no effect, or this one came after the run was parked: it may wake the run.
                self._router.take(delivery)
        # Unprocessed commands are unacknowledged; take them as if they had just arrived.
        for command in hosted.actor.inbox.waiting:
            if ending == ActivationEnd.QUARANTINED and command.verb != "kill":
                self._router.refuse(ref, command.verb, hosted.quarantine_code, QUARANTINED)
                command.done()
            else:
                command.again()


def _is_divergence(error: Exception) -> bool:
    """Whether a run cannot be performed because this version does not follow its log or does not accept its start."""
    return isinstance(error, CallboardError) and error.code.startswith("replay.")


class Slots:
    """A number of slots, assigned in the order of the requests."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._limiter = anyio.CapacityLimiter(places)

    @asynccontextmanager
    async def one(self, urgent: anyio.Event) -> AsyncGenerator[None]:
        """Hold a slot during the block. No slot is needed if ``urgent`` is set, before or during the wait."""
        borrower = object()
        try:
            self._limiter.acquire_on_behalf_of_nowait(borrower)
            taken = True
        except anyio.WouldBlock:
            taken = await self._wait(urgent, borrower)
        try:
            yield
        finally:
            if taken:
                self._limiter.release_on_behalf_of(borrower)

    async def _wait(self, urgent: anyio.Event, borrower: object) -> bool:
        """Wait for a slot or for ``urgent``; return whether a slot was taken."""
        taken = False
        async with anyio.create_task_group() as tasks:

            async def take() -> None:
                nonlocal taken
                await self._limiter.acquire_on_behalf_of(borrower)
                taken = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(take)
            await urgent.wait()
            tasks.cancel_scope.cancel()
        return taken
