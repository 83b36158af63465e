"""The worker: a process's host of run actors. Takes its share of the partitions, activates runs, passes commands on.

Consumes: start, alarm, cancel, kill, pause, resume, answer, signal
Emits: command.refused
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc
import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from callboard.actors.actor import Restart, Supervisor
from callboard.bus import events as ev
from callboard.bus.errors import CallboardError, LogUnavailable, RunLost
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import Unknown
from callboard.bus.queue import Delivery, Outbox, Puller, ensure_consumer, redeliver_now
from callboard.bus.subjects import RunRef
from callboard.runtime.admission import ADMISSION, Admission
from callboard.runtime.company import Company
from callboard.runtime.membership import HELLO_WAIT_BUSY_S, HELLO_WAIT_S, Membership, owner
from callboard.runtime.run import Command, Ending, RunActor

logger = structlog.get_logger(__name__)

ADMISSIONS_AT_ONCE = 64
CRASHED_RETRY_S = 30.0
CRASHED_RETRY_MAX_S = 3_600.0
"""A run that could not be performed is offered to its partition's worker again after so long, at first and at most."""

LEAVING_RETRY_S = 0.5
"""How soon to look again whether a worker that leaves has given a run up."""

URGENT = frozenset({"cancel", "kill", "pause"})
"""Commands for which a run is activated even in a full house."""

RESTARTS = Restart(most=2, within_s=60.0, pause_s=0.2)
"""How often a run actor that failed unexpectedly replays its run before the command is given back."""


@dataclass(slots=True)
class _Hosted:
    """A run at this worker, and the deliveries that stay unacknowledged as long as it is active."""

    actor: RunActor
    held: list[Delivery] = field(default_factory=list[Delivery])
    urgent: anyio.Event = field(default_factory=anyio.Event)
    activating: Command | None = None


class Worker:
    """Hosts runs until it is stopped."""

    def __init__(
        self,
        nc: Client,
        log: JetStreamLog,
        outbox: Outbox,
        company: Company,
        admission: Admission,
        *,
        ack_wait_s: float,
        runs_active_max: int,
    ) -> None:
        self._nc = nc
        self._log = log
        self._outbox = outbox
        self._company = company
        self._admission = admission
        self._ack_wait_s = ack_wait_s
        self._slots = anyio.CapacityLimiter(runs_active_max)
        self._admitting = anyio.CapacityLimiter(ADMISSIONS_AT_ONCE)
        self._hosted: dict[RunRef, _Hosted] = {}
        self._runs = Supervisor(lambda run, error: logger.error("run was dropped", run=run, exc_info=error))
        self._tasks: anyio.abc.TaskGroup
        self._membership = Membership(nc, log.subjects.beat(), company.worker, self._workers_changed)
        self._owned: dict[int, anyio.CancelScope] = {}
        self._pending_acks: dict[int, int] = {}
        self._reassign = anyio.Event()
        self._draining = False
        self._emptied = anyio.Event()
        self._vacant = anyio.Event()
        self.ready = anyio.Event()

    @property
    def active(self) -> int:
        """How many runs are at this worker."""
        return len(self._hosted)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled, or until `drain` has emptied the house."""
        await self._ensure_consumers()
        forwarded = await self._nc.subscribe(self._forward_subject(self._company.worker), cb=self._take_forwarded)
        claimed = await self._nc.subscribe(self._log.subjects.events(event_type="run.claimed"), cb=self._take_claim)
        try:
            async with anyio.create_task_group() as self._tasks, self._runs:
                self._tasks.start_soon(self._outbox.run)
                self._tasks.start_soon(self._hold_deliveries)
                self._tasks.start_soon(self._assign)
                busy = any(self._pending_acks.values())
                self._tasks.start_soon(self._membership.run, HELLO_WAIT_BUSY_S if busy else HELLO_WAIT_S)
                admissions = Puller(self._nc, self._log.stream, ADMISSION, self._admit, self._outbox.send)
                admitting = anyio.CancelScope()
                self._tasks.start_soon(self._scoped, admissions.run, admitting)
                self._owned[-1] = admitting
                await self._emptied.wait()
                self._runs.stop_all()
                self._tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2.0):
                await self._outbox.flush()
                await forwarded.unsubscribe()
                await claimed.unsubscribe()

    async def drain(self, patience_s: float) -> None:
        """Take nothing more, let running effects finish for so long, and give the runs to other workers."""
        self._draining = True
        await self._membership.leave()
        for scope in self._owned.values():
            scope.cancel()
        with anyio.move_on_after(patience_s):
            for hosted in list(self._hosted.values()):
                hosted.actor.drain()
            if self._hosted:
                await self._vacant.wait()
        for hosted in self._hosted.values():
            for delivery in hosted.held:
                delivery.nak()
        self._emptied.set()

    async def _ensure_consumers(self) -> None:
        subjects = self._log.subjects
        stream = self._log.stream
        out = await ensure_consumer(self._log.requests, stream, ADMISSION, subjects.inbound(), self._ack_wait_s)
        self._pending_acks[-1] = out

        async def one(partition: int) -> None:
            durable = f"partition-{partition}"
            filters = subjects.partition(partition)
            self._pending_acks[partition] = await ensure_consumer(
                self._log.requests, stream, durable, filters, self._ack_wait_s
            )

        async with anyio.create_task_group() as tasks:
            for partition in range(self._log.partitions):
                tasks.start_soon(one, partition)

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _workers_changed(self) -> None:
        self._reassign.set()

    async def _assign(self) -> None:
        """Read those partitions that fall to this worker; follow every change of the membership."""
        alive: set[str] = set()
        while True:
            await self._reassign.wait()
            self._reassign = anyio.Event()
            if self._draining:
                return
            # Who has just come asks whose it was among those who were there before.
            alive_now = self._membership.live()
            before, alive = alive or alive_now - {self._company.worker}, alive_now
            there = alive | self._membership.leaving()
            await self._readmit(before - there)
            for partition in range(self._log.partitions):
                mine = owner(partition, alive) == self._company.worker
                if mine and partition not in self._owned:
                    predecessor = owner(partition, before) if before else None
                    # What a worker that is gone has left unacknowledged must not wait until it counts as lost.
                    await self._take_over(partition, predecessor is None or predecessor not in there)
                elif not mine and partition in self._owned:
                    self._owned.pop(partition).cancel()
            self.ready.set()

    async def _readmit(self, gone: set[str]) -> None:
        """Have admitted again what a lost worker had taken in: repeating an admission is harmless, waiting is not."""
        alone = self._membership.live() == {self._company.worker} and not self.ready.is_set()
        one_of_us = owner(-1, self._membership.live() or {self._company.worker}) == self._company.worker
        if one_of_us and (gone or (alone and self._pending_acks.pop(-1, 0))):
            try:
                await redeliver_now(self._log.requests, self._log.stream, ADMISSION)
            except Unknown as error:
                logger.warning("messages of a lost worker come back later", error=str(error))

    async def _take_over(self, partition: int, orphaned: bool) -> None:
        durable = f"partition-{partition}"
        if orphaned and self._pending_acks.get(partition, 1):
            try:
                await redeliver_now(self._log.requests, self._log.stream, durable)
            except Unknown as error:
                logger.warning("commands of a lost worker come back later", partition=partition, error=str(error))
        # At the next take-over nobody knows how many are out.
        self._pending_acks.pop(partition, None)
        puller = Puller(self._nc, self._log.stream, durable, self._take, self._outbox.send)
        scope = self._owned[partition] = anyio.CancelScope()
        self._tasks.start_soon(self._scoped, puller.run, scope)

    async def _scoped(self, body: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        with scope:
            await body()

    async def _hold_deliveries(self) -> None:
        """Tell the server that what is held is still being worked on."""
        while True:
            await anyio.sleep(self._ack_wait_s / 3)
            for hosted in self._hosted.values():
                for delivery in hosted.held:
                    delivery.hold()

    # -- admission ----------------------------------------------------------------------------------------------------

    def _admit(self, delivery: Delivery) -> None:
        self._tasks.start_soon(self._admit_one, delivery)

    async def _admit_one(self, delivery: Delivery) -> None:
        async with self._admitting:
            try:
                await self._admission.admit(delivery)
            except Exception:
                # The message stays in the queue; whatever broke must not take the house down.
                logger.exception("admission failed unexpectedly", subject=delivery.subject)
                delivery.nak(CRASHED_RETRY_S)

    # -- commands -----------------------------------------------------------------------------------------------------

    def _take(self, delivery: Delivery) -> None:
        """A command or alarm of one of our partitions; also called for forwarded ones."""
        subject = self._log.subjects.parse_command(delivery.subject)
        hosted = self._hosted.get(subject.ref)
        if hosted is not None:
            self._tell(hosted, delivery, subject.verb)
        elif self._draining:
            delivery.nak()
        elif subject.verb == "start" and delivery.deliveries == 1:
            # Most starts come here first. After a reset of the consumer even this may be one of a run that is going on.
            self._activate(subject.ref, delivery, subject.verb, fresh=True)
        else:
            self._tasks.start_soon(self._find_home, subject.ref, delivery, subject.verb)

    def _tell(self, hosted: _Hosted, delivery: Delivery, verb: str) -> None:
        for i, held in enumerate(hosted.held):
            if held.sequence == delivery.sequence:
                # The command that keeps this run active, delivered again: hold on to the newer delivery.
                hosted.held[i] = delivery
                return
        if verb in URGENT:
            hosted.urgent.set()
        hosted.actor.tell(
            Command(delivery.sequence, verb, delivery.data, done=delivery.ack, again=lambda: self._take(delivery))
        )

    async def _find_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        """A command for a run that is not here: it may be over, at another worker, or ours to activate."""
        try:
            last = await self._log.last(ref)
            claim = await self._log.last_of_type(ref, ev.RunClaimed.type) if last else None
        except Unknown as error:
            logger.warning("command is waiting for the log", run=ref.run, error=str(error))
            delivery.nak(1.0)
            return
        if last is not None and last.event.type == ev.RunEnd.type:
            self._refuse_late(ref, delivery, verb, last.event.definition)
            return
        resting = last is None or last.event.type in (ev.RunParked.type, ev.RunAccepted.type)
        if not resting and claim is not None:
            payload = ev.payload_of(claim.event)
            assert isinstance(payload, ev.RunClaimed)
            leaving = self._membership.leaving()
            others = (self._membership.live() | leaving) - {self._company.worker}
            if payload.worker in others:
                self._forward(payload.worker, delivery, verb, LEAVING_RETRY_S if payload.worker in leaving else None)
                return
        hosted = self._hosted.get(ref)
        if hosted is not None:
            self._tell(hosted, delivery, verb)
        else:
            self._activate(ref, delivery, verb)

    def _forward(self, worker: str, delivery: Delivery, verb: str, retry_s: float | None) -> None:
        if verb in ("start", "alarm") and retry_s is not None:
            # Its worker will give the run up; look again when that may have happened.
            delivery.nak(retry_s)
            return
        headers = {
            "Cb-Subject": delivery.subject,
            "Cb-Reply": delivery.reply,
            "Cb-Sequence": str(delivery.sequence),
            "Cb-Deliveries": str(delivery.deliveries),
        }
        self._outbox.send(self._forward_subject(worker), delivery.data, headers)

    def _forward_subject(self, worker: str) -> str:
        return f"{self._log.subjects.prefix}.worker.{worker}.tell"

    async def _take_forwarded(self, message: Msg) -> None:
        headers = message.headers or {}
        subject = self._log.subjects.parse_command(headers["Cb-Subject"])
        delivery = Delivery(
            subject=headers["Cb-Subject"],
            data=message.data,
            headers={},
            sequence=int(headers["Cb-Sequence"]),
            deliveries=int(headers["Cb-Deliveries"]),
            time_ns=0,
            reply=headers["Cb-Reply"],
            _send=self._outbox.send,
        )
        hosted = self._hosted.get(subject.ref)
        if hosted is not None:
            self._tell(hosted, delivery, subject.verb)
        elif self._draining:
            delivery.nak(LEAVING_RETRY_S)
        else:
            # The log says that the run is ours, and it is not here: it has gone meanwhile, or we gave it back.
            self._tasks.start_soon(self._find_home, subject.ref, delivery, subject.verb)

    async def _take_claim(self, message: Msg) -> None:
        """Somebody claims a run. If it was ours we may have lost it, even while a long effect keeps us from appending.

        What is heard here may have been refused by the log, so the log is asked.
        """
        subject = self._log.subjects.parse_event(message.subject)
        if subject.ref in self._hosted:
            payload = ev.payload_of(ev.decode_event(message.data))
            if isinstance(payload, ev.RunClaimed) and payload.worker != self._company.worker:
                self._tasks.start_soon(self._check_claim, subject.ref)

    async def _check_claim(self, ref: RunRef) -> None:
        try:
            claim = await self._log.last_of_type(ref, ev.RunClaimed.type)
        except Unknown:
            # The next append will tell.
            return
        hosted = self._hosted.get(ref)
        if claim is not None and hosted is not None:
            hosted.actor.lose(claim.event)

    def _refuse_late(self, ref: RunRef, delivery: Delivery, verb: str, definition: str) -> None:
        """The run has ended: nothing can be recorded in it any more."""
        if verb not in ("start", "alarm"):
            refused = ev.CommandRefused(verb=verb, code="run.finished", message="the run has ended")
            subject = self._log.subjects.live(ref, definition, refused.type)
            self._outbox.send(subject, msgspec.json.encode(refused))
        delivery.ack()

    # -- runs ---------------------------------------------------------------------------------------------------------

    def _activate(self, ref: RunRef, delivery: Delivery, verb: str, *, fresh: bool = False) -> None:
        """Make a run active; its activating command stays unacknowledged until the run parks or ends."""
        actor = RunActor(ref, self._log, self._company, fresh=fresh)
        hosted = self._hosted[ref] = _Hosted(actor, [delivery])
        if verb not in ("start", "alarm"):
            # Recorded it is, but not acknowledged: as long as the run is active, this delivery stands for it.
            hosted.activating = Command(delivery.sequence, verb, delivery.data)
            actor.tell(hosted.activating)
        if verb in URGENT:
            hosted.urgent.set()
        self._runs.spawn(ref.run, lambda: self._host(ref, hosted))

    async def _host(self, ref: RunRef, hosted: _Hosted) -> None:
        ending: Ending | None = None
        try:
            async with self._place(hosted):
                with structlog.contextvars.bound_contextvars(run=ref.run):
                    ending = await self._perform(ref, hosted)
        finally:
            del self._hosted[ref]
            if self._draining and not self._hosted:
                self._vacant.set()
            if ending is not None:
                self._let_go(ref, hosted, ending)

    @asynccontextmanager
    async def _place(self, hosted: _Hosted) -> AsyncGenerator[None]:
        """A place among the active runs; who is told to stop need not wait for one."""
        borrower = object()
        try:
            self._slots.acquire_on_behalf_of_nowait(borrower)
            taken = True
        except anyio.WouldBlock:
            taken = await self._wait_for_place(hosted, borrower)
        try:
            yield
        finally:
            if taken:
                self._slots.release_on_behalf_of(borrower)

    async def _wait_for_place(self, hosted: _Hosted, borrower: object) -> bool:
        """Wait for a place, or for something urgent; say whether there is a place."""
        taken = False
        async with anyio.create_task_group() as tasks:

            async def take() -> None:
                nonlocal taken
                await self._slots.acquire_on_behalf_of(borrower)
                taken = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(take)
            await hosted.urgent.wait()
            tasks.cancel_scope.cancel()
        return taken

    async def _perform(self, ref: RunRef, hosted: _Hosted) -> Ending | None:
        """Run the actor, again after an unexpected failure; None if the command has been given back."""
        for restart in range(RESTARTS.most + 1):
            try:
                return await hosted.actor.run()
            except RunLost as error:
                logger.info("run is another worker's", why=str(error))
                self._give_back(hosted, self._ack_wait_s)
                return None
            except (LogUnavailable, Unknown) as error:
                logger.warning("run is waiting for the log", why=str(error))
                self._give_back(hosted, 1.0)
                return None
            except CallboardError as error:
                logger.error("run cannot be performed by this version", why=str(error))
                # Every try leaves a claim in the log: try less and less often.
                deliveries = max(delivery.deliveries for delivery in hosted.held)
                self._give_back(hosted, min(CRASHED_RETRY_S * 2 ** min(deliveries - 1, 16), CRASHED_RETRY_MAX_S))
                return None
            except Exception:
                logger.exception("run actor failed", restart=restart)
                await anyio.sleep(RESTARTS.pause_s)
                commands = hosted.actor.inbox
                hosted.actor = RunActor(ref, self._log, self._company)
                if hosted.activating is not None and hosted.activating not in commands:
                    # Taken up by the actor that failed, recorded or not: the log will know.
                    hosted.actor.inbox.append(hosted.activating)
                hosted.actor.inbox.extend(commands)
        self._give_back(hosted, CRASHED_RETRY_S)
        return None

    def _give_back(self, hosted: _Hosted, delay_s: float) -> None:
        for delivery in hosted.held:
            delivery.nak(delay_s)

    def _let_go(self, ref: RunRef, hosted: _Hosted, ending: Ending) -> None:
        """The run has parked or ended: acknowledge what kept it active, and see to commands that came too late."""
        if ending == "not_found":
            # The command was faster than the replica that was read.
            self._give_back(hosted, 0.2)
            return
        if ending == "drained":
            self._give_back(hosted, 0.0)
            return
        for delivery in hosted.held:
            if ending == "claimed_before":
                self._tasks.start_soon(self._find_home, ref, delivery, "start")
            else:
                delivery.ack()
        # Commands that were not looked at are unacknowledged; take them as if they had come just now.
        for command in hosted.actor.inbox:
            command.again()
