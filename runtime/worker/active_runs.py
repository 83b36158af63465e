"""Active runs: a worker's run actors, how many there are at once, and the commands they hold unacknowledged."""

from collections.abc import Collection
from typing import Any, Protocol

import anyio
import anyio.abc
import structlog
from msgspec import Struct, field

from callboard.actors.actor import Restart, Supervisor
from callboard.bus.errors import (
    CallboardError,
    KeyMissing,
    LogUnavailable,
    LogUnreadable,
    ReplayDiverged,
    RunLost,
    StoreFull,
)
from callboard.bus.events import Event
from callboard.bus.log.port import EventLog, NoAnswer, Recorded
from callboard.bus.log.private_logging import discretion
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef
from callboard.lib.backoff import backoff_s
from callboard.runtime.run.activation import Command, Services
from callboard.runtime.run.actor import Ending, RunActor
from callboard.runtime.run.crashes import KeepsCrashing, NotYet, Probation
from callboard.runtime.run.divergence import record_divergence
from callboard.runtime.run.inbox import URGENT
from callboard.runtime.run.kill import end_killed
from callboard.runtime.run.quarantine import quarantine
from callboard.runtime.worker.slots import Slots

logger = structlog.get_logger(__name__)

CRASHED_RETRY_S = 30.0
CRASHED_RETRY_MAX_S = 3_600.0
"""A run that could not be performed is offered to its partition's worker again after so long, at first and at most."""

KEY_RETRY_S = 1.0
KEY_RETRY_MAX_S = 60.0
"""The same where only the key is missing that the run is encrypted with."""

FULL_RETRY_S = 1.0
"""A command that a run has no room for is delivered again after so long."""

ACTIVATING = frozenset({"start", "alarm"})
"""Commands that are there to have a run activated, and say nothing to one that is."""

RESTARTS = Restart(most=2, within_s=60.0, pause_s=0.2)
"""How often a run actor that failed unexpectedly replays its run before the command is given back."""


RELEASE_WAIT_S = 2.0
"""How long a worker that shuts down waits until its runs have recorded that their effects are stopped."""

QUARANTINE_TRIES = 8
"""Deliveries of a command after which a run whose actor always fails is quarantined."""

QUARANTINED = "the run is quarantined; `callboard kill` ends it"


class Hear(Protocol):
    """Is told of each run that becomes active. A ``fresh`` one has not been performed before."""

    def __call__(self, ref: RunRef, *, fresh: bool) -> None: ...


def _unheard(ref: RunRef, *, fresh: bool) -> None:
    """Nothing listens to which runs become active."""


class Router(Protocol):
    """The worker, as its active runs see it: finds another place for commands that a run ended without looking at."""

    def take(self, delivery: Delivery) -> None:
        """Pass a command on to its run, as if it had come just now."""
        ...

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        """Find out from the log whose run it is, and pass the command on."""
        ...

    def refuse(self, ref: RunRef, verb: str, code: str, message: str) -> None:
        """Tell those who listen that a command came to nothing."""
        ...


class _Hosted(Struct):
    """A run at this worker, and the deliveries that stay unacknowledged as long as it is active."""

    actor: RunActor
    held: list[Delivery] = field(default_factory=list[Delivery])
    urgent: anyio.Event = field(default_factory=anyio.Event)
    activating: Command | None = None
    quarantine_code: str = ""

    def stop(self, verbs: Collection[str]) -> Command | None:
        """Return the first command of these verbs that the actor has not taken."""
        waiting = [*([self.activating] if self.activating is not None else []), *self.actor.inbox.waiting]
        return next((command for command in waiting if command.verb in verbs), None)

    @property
    def deliveries(self) -> int:
        """How often a command of it has been delivered, at most."""
        return max((delivery.deliveries for delivery in self.held), default=1)

    def give_back(self, delay_s: float) -> None:
        for delivery in self.held:
            delivery.nak(delay_s)


class Counts(Struct):
    """What has happened to the runs of a worker, from its beginning on."""

    replays: int = 0
    divergences: int = 0


class ActiveRuns:
    """Hosts the runs of one worker."""

    def __init__(
        self, log: EventLog, services: Services, router: Router, *, ack_wait_s: float, runs_active_max: int
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
        self.hear: Hear = _unheard
        self.closed = False
        """Whether no run is taken in any more."""

    def __len__(self) -> int:
        return len(self._hosted)

    def __contains__(self, ref: RunRef) -> bool:
        return ref in self._hosted

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Host runs until cancelled; tell the server meanwhile that what is held is still being worked on."""
        async with self._runs:
            task_status.started()
            while True:
                await anyio.sleep(self._ack_wait_s / 3)
                for hosted in self._hosted.values():
                    for delivery in hosted.held:
                        delivery.hold()

    async def drain(self, patience_s: float) -> None:
        """Let running effects finish for so long, then give the runs to other workers."""
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
        """Wait until no run is here."""
        self._vacant = anyio.Event()
        if self._hosted:
            await self._vacant.wait()

    # -- what comes in ------------------------------------------------------------------------------------------------

    def tell(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        """Pass a command on to a run that is here."""
        hosted = self._hosted[ref]
        for i, held in enumerate(hosted.held):
            if held.sequence == delivery.sequence:
                # The command that keeps this run active, delivered again: hold on to the newer delivery.
                hosted.held[i] = delivery
                return
        if verb in ACTIVATING:
            # As long as the run is active, and ours, there is nothing to it.
            hosted.held.append(delivery)
            return
        if verb in URGENT:
            hosted.urgent.set()
        again = self._router.take
        command = Command(
            delivery.sequence, verb, delivery.data, delivery.ack, lambda: again(delivery), stored=delivery.stored
        )
        if not hosted.actor.tell(command):
            delivery.nak(FULL_RETRY_S)

    def activate(self, ref: RunRef, delivery: Delivery, verb: str, *, fresh: bool = False) -> None:
        """Make a run active; its activating command stays unacknowledged until the run parks or ends."""
        if self.closed:
            delivery.nak()
            return
        self.counts.replays += not fresh
        activating = Command(delivery.sequence, verb, delivery.data, stored=delivery.stored)
        actor = self._actor(ref, fresh=fresh, activated_by=activating)
        hosted = _Hosted(actor, [delivery])
        if verb not in ACTIVATING:
            # Recorded it is, but not acknowledged: as long as the run is active, this delivery stands for it.
            hosted.activating = activating
            actor.tell(activating)
        if verb in URGENT:
            hosted.urgent.set()
        self.hear(ref, fresh=fresh)
        self._begin(ref, hosted)

    def begin(self, first: Recorded) -> None:
        """Make a run active that has just been admitted here: its first event is all that there is of it. The command
        that calls for it is on its way, and held once it comes; if it comes too late, it finds that nothing is left."""
        if not self.closed:
            self.hear(first.ref, fresh=True)
            self._begin(first.ref, _Hosted(self._actor(first.ref, first=first)))

    def _actor(self, ref: RunRef, **how: Any) -> RunActor:
        return RunActor(ref, self._log, self._services, probation=self._probation, **how)

    def _begin(self, ref: RunRef, hosted: _Hosted) -> None:
        self._hosted[ref] = hosted
        self._runs.spawn(ref.run, lambda: self._host(ref, hosted))

    def lose(self, ref: RunRef, claim: Event) -> None:
        """Show a run's actor a claim that was seen in the log: if it is newer than its own, the run is lost here."""
        hosted = self._hosted.get(ref)
        if hosted is not None:
            hosted.actor.lose(claim)

    # -- one run ------------------------------------------------------------------------------------------------------

    async def _host(self, ref: RunRef, hosted: _Hosted) -> None:
        ending: Ending | None = None
        try:
            async with self._slots.one(hosted.urgent):
                with structlog.contextvars.bound_contextvars(run=ref.run), discretion():
                    ending = await self._perform(ref, hosted)
        finally:
            del self._hosted[ref]
            if not self._hosted:
                self._vacant.set()
            if ending is not None:
                self._let_go(ref, hosted, ending)

    async def _perform(self, ref: RunRef, hosted: _Hosted) -> Ending | None:
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

    async def _record_divergence(self, ref: RunRef, hosted: _Hosted, error: CallboardError) -> None:
        """Record that this version cannot continue the run. Its command comes again, after a pause that grows."""
        self.counts.divergences += isinstance(error, ReplayDiverged)
        logger.error("run cannot be performed by this version", code=error.code, error=str(error))
        try:
            await record_divergence(self._log, self._services, ref, error)
        except (CallboardError, NoAnswer) as unrecorded:
            logger.warning("divergence could not be recorded", error=str(unrecorded))
        hosted.give_back(backoff_s(hosted.deliveries, CRASHED_RETRY_S, CRASHED_RETRY_MAX_S))

    async def _quarantine(self, ref: RunRef, hosted: _Hosted, error: CallboardError) -> Ending | None:
        logger.error("run is quarantined", code=error.code, error=str(error))
        try:
            await quarantine(self._log, self._services, ref, error)
        except (CallboardError, NoAnswer) as unrecorded:
            logger.warning("run could not be quarantined", error=str(unrecorded))
            hosted.give_back(1.0)
            return None
        hosted.quarantine_code = error.code
        return "quarantined"

    async def _act(self, ref: RunRef, hosted: _Hosted) -> Ending:
        """Let the actor act. A run that it cannot perform can still be killed, and a diverged one be cancelled."""
        try:
            return await self._act_again(ref, hosted)
        except (RunLost, LogUnavailable, StoreFull, NoAnswer, NotYet):
            raise
        except Exception as error:
            if not await self._kill(ref, hosted, diverged=_is_divergence(error)):
                raise
            return "ended"

    async def _act_again(self, ref: RunRef, hosted: _Hosted) -> Ending:
        """Run the actor, again after an unexpected failure."""
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
        """Put a new actor in the place of one that failed."""
        commands = hosted.actor.inbox.waiting
        hosted.actor = self._actor(ref)
        if self.closed:
            hosted.actor.drain()
        if hosted.activating is not None and hosted.activating not in commands:
            # Taken up by the actor that failed, recorded or not: the log will know.
            hosted.actor.inbox.waiting.append(hosted.activating)
        hosted.actor.inbox.waiting.extend(commands)

    async def _kill(self, ref: RunRef, hosted: _Hosted, *, diverged: bool) -> bool:
        """End a run that cannot be performed, if it is to be killed; say whether that was so. A cancellation of a run
        that has ``diverged`` is a kill, since no clean-up can be run."""
        kill = hosted.stop(("kill", "cancel") if diverged else ("kill",))
        if not await end_killed(self._log, self._services, ref, kill):
            return False
        if kill is not None:
            kill.done()
            if kill in hosted.actor.inbox.waiting:
                hosted.actor.inbox.waiting.remove(kill)
        return True

    def _let_go(self, ref: RunRef, hosted: _Hosted, ending: Ending) -> None:
        """The run has parked or ended: acknowledge what kept it active, and see to commands that came too late."""
        if ending == "not_found":
            # The command was faster than the replica that was read.
            hosted.give_back(0.2)
            return
        if ending == "drained":
            hosted.give_back(0.0)
            for command in hosted.actor.inbox.waiting:
                command.again()
            return
        activating, others = hosted.held[:1], hosted.held[1:]
        for delivery in activating:
            if ending == "claimed_before":
                self._router.seek_home(ref, delivery, "start")
            else:
                delivery.ack()
        over, parked_at = ending in ("ended", "finished_before"), hosted.actor.sequence if ending == "parked" else 0
        for delivery in others:
            if over or delivery.sequence < parked_at:
                delivery.ack()
            else:
                # There was nothing to the first one, or this came when the run had been parked: it may wake the run.
                self._router.take(delivery)
        # Commands that were not looked at are unacknowledged; take them as if they had come just now.
        for command in hosted.actor.inbox.waiting:
            if ending == "quarantined" and command.verb != "kill":
                self._router.refuse(ref, command.verb, hosted.quarantine_code, QUARANTINED)
                command.done()
            else:
                command.again()


def _is_divergence(error: Exception) -> bool:
    """Whether a run cannot be performed because this version does not follow its log, or not accept its start."""
    return isinstance(error, CallboardError) and error.code.startswith("replay.")
