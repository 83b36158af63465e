"""The worker: a process that performs runs. Receives commands, finds the workers of their runs and passes them on.

`assignment` decides which queues it reads, and `active_runs` hosts its runs.

Consumes: start, alarm, cancel, kill, pause, resume, answer, signal
Emits: command.refused
"""

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Protocol

import anyio
import anyio.abc
import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from callboard.actors.partial_answers import AskPartialAnswer, PartialAnswers
from callboard.bus import events as ev
from callboard.bus.commands import ROUTING_BYTES, TELLS, WORKER_HEADER
from callboard.bus.errors import LogUnreadable
from callboard.bus.log.port import Full, NoAnswer
from callboard.bus.log.private_logging import content_guard
from callboard.bus.log.recorded import Recorded, decode_recorded
from callboard.bus.log.successors import Stop, successor_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import find_newest_run
from callboard.bus.nats.queue import PULL_BYTES_MAX, PULL_MESSAGES, Delivery, Outbox
from callboard.bus.subjects import RunRef
from callboard.languages.registry import hosting
from callboard.lib.backoff import backoff_s
from callboard.lib.foreign_errors import is_foreign
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.admission import Admission
from callboard.runtime.admission.chains import mark_stopped
from callboard.runtime.admission.command_routing import header_of, pass_on, pass_on_stop
from callboard.runtime.admission.refusals import refusal_of_start
from callboard.runtime.admission.start_plans import CodeElsewhere
from callboard.runtime.cluster.forwarded_deliveries import delivery_of, headers_of
from callboard.runtime.cluster.membership import Load
from callboard.runtime.interpreter.code import named_code
from callboard.runtime.run.activation import RunServices
from callboard.runtime.run.inbox import ENDING
from callboard.runtime.run.new_run import NewRun
from callboard.runtime.worker.active_runs import CRASHED_RETRY_S, QUARANTINED, ActiveRuns, Counts, Hear
from callboard.runtime.worker.assignment import Assignment
from callboard.runtime.worker.failure_counts import FailureCounts

logger = structlog.get_logger(__name__)

ADMISSIONS_AT_ONCE = 64

ADMISSION_TRIES_MAX = 5
"""Unexpected errors after which a start or a command is rejected, counted by each worker."""

ADMISSION_RETRY_S = 1.0
ADMISSION_RETRY_MAX_S = 30.0
"""First and longest pause before a message whose admission failed unexpectedly is redelivered."""

WAKING = frozenset({"start", "alarm", "wake", "usage", "hold", "release"})
"""Commands that only wake a run, and messages between runs. If they come too late, that is not published."""

CONTINUED = frozenset({*TELLS, "hold", "release"})
"""Commands to a run that has ended which go to the run that continues it."""

EVENTS_AT_ONCE = 1_000
"""Number of events that are read at once when a command is looked for in a run that has ended."""

LEAVING_RETRY_S = 0.5
"""Delay before checking again whether a leaving worker has given up a run."""


def _return_none() -> None:
    return None


class WorkerServices(RunServices, Protocol):
    """The services of a worker: those of its runs, and the answers in progress that it can be asked for."""

    answers: PartialAnswers


class Worker:
    """Performs runs until it is stopped.

    ``fullness`` returns how full the store is, if known. ``has_model`` is true if the worker has a default model.
    """

    def __init__(
        self,
        nc: Client,
        log: JetStreamLog,
        outbox: Outbox,
        services: WorkerServices,
        admission: Admission,
        *,
        ack_wait_s: float,
        runs_active_max: int,
        guest: bool = False,
        fullness: Callable[[], float | None] = _return_none,
        has_model: bool = False,
        all_back_at: float = inf,
    ) -> None:
        self._nc = nc
        self._fullness = fullness
        self._has_model = has_model
        self._log = log
        self._outbox = outbox
        self._name = services.worker
        self._admission = admission
        self._admitting = anyio.CapacityLimiter(ADMISSIONS_AT_ONCE)
        self._in_admission: dict[int, Delivery] = {}
        self._failures = FailureCounts()
        self._seen = anyio.Event()
        self._hold_s = ack_wait_s / 3
        self._active_runs = ActiveRuns(log, services, self, ack_wait_s=ack_wait_s, runs_active_max=runs_active_max)
        self._assignment = Assignment(
            nc,
            log,
            outbox,
            self._name,
            admit=self._admit,
            room=self._wait_for_capacity,
            deliver=self.take,
            ack_wait_s=ack_wait_s,
            guest=guest,
            load=self.load,
            all_back_at=all_back_at,
            code=hosting().entries,
        )
        self._runs_active_max = runs_active_max
        self._effects = services.effects
        self._answers = services.answers
        admission.starts.set_worker(self, self._assignment)
        self._tasks: anyio.abc.TaskGroup
        self._subscriptions: list[Subscription] = []
        self._emptied = anyio.Event()

    @property
    def name(self) -> str:
        """The worker's name, which no other worker has or had."""
        return self._name

    @property
    def active(self) -> int:
        """The number of active runs at this worker."""
        return len(self._active_runs)

    @property
    def partitions(self) -> list[int]:
        """The partitions that this worker reads."""
        return self._assignment.partitions

    @property
    def counts(self) -> Counts:
        """The counts of replays and divergences at this worker."""
        return self._active_runs.counts

    def load(self) -> Load:
        """The current load of this worker."""
        effects = self._effects
        used, most = effects.borrowed_tokens, int(effects.total_tokens)
        return Load(
            self.active,
            self._runs_active_max,
            used,
            most,
            store=self._fullness(),
            has_model=self._has_model,
        )

    @property
    def draining(self) -> bool:
        """Whether this worker takes no further runs and gives its runs to others."""
        return self._active_runs.closed

    @property
    def ready(self) -> anyio.Event:
        """Set once this worker reads its queues."""
        return self._assignment.ready

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled, or until `drain` has given up all runs."""
        await self._assignment.prepare()
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._tasks.start(self._active_runs.run)
                await self._listen(self._log.subjects.worker(self._name, "tell"), self._take_forwarded)
                await self._listen(self._log.subjects.worker(self._name, "admit"), self._take_start)
                await self._listen(self._log.subjects.worker(self._name, "answer"), self._send_partial_answer)
                await self._listen(self._log.subjects.events(event_type="run.claimed"), self._take_claim)
                self._tasks.start_soon(self._outbox.run)
                self._tasks.start_soon(self._assignment.run)
                self._tasks.start_soon(self._hold_admissions)
                await self._emptied.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2.0):
                await self._outbox.flush()
                for subscription in self._subscriptions:
                    await subscription.unsubscribe()

    async def _listen(self, subject: str, take: Callable[[Msg], Awaitable[None]]) -> None:
        self._subscriptions.append(await self._nc.subscribe(subject, cb=take))

    def listen(self, hear: Hear) -> None:
        """Call a function with each run that becomes active here."""
        self._active_runs.hear = hear

    async def drain(self, patience_s: float) -> None:
        """Take no further runs, let running effects finish for up to ``patience_s`` seconds, and give the runs away."""
        self._active_runs.closed = True
        await self._assignment.leave()
        await self._active_runs.drain(patience_s)
        self._emptied.set()

    async def _send_partial_answer(self, message: Msg) -> None:
        """Send what a model has said so far, in order with the pieces that follow."""
        try:
            asked = msgspec.json.decode(message.data, type=AskPartialAnswer)
        except JSON_ERRORS as error:
            logger.error("message ignored: no request for a partial answer", subject=message.subject, error=str(error))
            return
        found = self._answers.find(RunRef(asked.tenant, asked.run), asked.n)
        self._outbox.send(message.reply, msgspec.json.encode(found))

    # -- admission ----------------------------------------------------------------------------------------------------

    def _admit(self, delivery: Delivery) -> None:
        wanted = delivery.headers.get(WORKER_HEADER, "")
        fits = len(delivery.data) + ROUTING_BYTES <= self._nc.max_payload
        if fits and wanted in self._assignment.others() - self._assignment.leaving():
            # The worker that must perform the run also decides whether it can.
            self._outbox.send(self._log.subjects.worker(wanted, "admit"), delivery.data, headers_of(delivery))
        else:
            self._begin_admission(delivery)

    async def _take_start(self, message: Msg) -> None:
        if (delivery := self._parse_forwarded(message)) is not None:
            self._begin_admission(delivery)

    def _begin_admission(self, delivery: Delivery) -> None:
        if delivery.sequence in self._in_admission:
            # A redelivery during admission: acknowledging the first delivery acknowledges this one too.
            return
        self._in_admission[delivery.sequence] = delivery
        self._tasks.start_soon(self._admit_one, delivery)

    async def _wait_for_capacity(self) -> None:
        """Wait until the messages in admission are few and small enough for another pull."""
        while (
            len(self._in_admission) >= PULL_MESSAGES
            or sum(len(delivery.data) for delivery in self._in_admission.values()) >= PULL_BYTES_MAX
        ):
            self._seen = anyio.Event()
            await self._seen.wait()

    async def _admit_one(self, delivery: Delivery) -> None:
        with content_guard():
            try:
                async with self._admitting:
                    await self._admission.admit(delivery)
            except CodeElsewhere as error:
                self._outbox.send(self._log.subjects.worker(error.worker, "admit"), delivery.data, headers_of(delivery))
            except BaseException as error:
                if not is_foreign(error):
                    raise
                logger.exception("admission failed unexpectedly", subject=delivery.subject)
                await self._retry_or_reject(delivery, error)
            else:
                self._failures.pop(delivery.sequence)
            finally:
                self._in_admission.pop(delivery.sequence, None)
                self._seen.set()

    async def _retry_or_reject(self, delivery: Delivery, error: BaseException) -> None:
        """Have a message redelivered after an unexpected error; reject it after `ADMISSION_TRIES_MAX` errors."""
        tries = self._failures.count(delivery.sequence)
        if tries < ADMISSION_TRIES_MAX:
            delivery.nak(backoff_s(tries, ADMISSION_RETRY_S, ADMISSION_RETRY_MAX_S))
            return
        try:
            await self._admission.give_up(delivery, error)
        except NoAnswer as unanswered:
            logger.warning("admission is waiting for the log", error=str(unanswered))
            delivery.nak(ADMISSION_RETRY_MAX_S)
        except Exception:
            # The rejection cannot be recorded either, and another delivery would fail in the same way.
            logger.exception("message dropped: it can be neither admitted nor rejected", subject=delivery.subject)
            delivery.ack()
        self._failures.pop(delivery.sequence)

    def perform_at_once(self, first: Recorded, worker: str) -> None:
        """Activate a run that was just admitted here, if it belongs to this worker, before its command is routed."""
        if self._is_ours(first.ref, worker):
            self._active_runs.begin(first)

    async def store_and_perform(self, new: NewRun) -> bool:
        """Perform a new run here and wait until its first events are stored; return whether they are."""
        if not self._is_ours(new.ref, new.command.worker) or not self._active_runs.begin_new(new):
            return False
        return await new.wait_until_stored()

    def _is_ours(self, ref: RunRef, worker: str) -> bool:
        """Whether a new run that ``worker`` must perform (empty for any) belongs here and is not active yet."""
        ours = worker == self._name or (not worker and self._assignment.reads(ref))
        return ours and ref not in self._active_runs

    async def _hold_admissions(self) -> None:
        """Keep the server from redelivering messages in admission, which may take a while."""
        while True:
            await anyio.sleep(self._hold_s)
            for delivery in self._in_admission.values():
                delivery.hold()

    # -- commands: `callboard.runtime.worker.active_runs.CommandRouter` ----------------------------------------

    def take(self, delivery: Delivery) -> None:
        """Take a command from a queue of this worker, or one that a run here ended without processing."""
        try:
            subject = self._log.subjects.parse_command(delivery.subject)
        except ValueError as error:
            logger.error("message ignored: its subject is not a command's", subject=delivery.subject, error=str(error))
            delivery.ack()
            return
        if subject.ref in self._active_runs:
            self._active_runs.tell(subject.ref, delivery, subject.verb)
        elif self._active_runs.closed:
            delivery.nak()
        elif self._is_fresh(delivery, subject.verb):
            # Most starts arrive here first. After a reset of the consumer, even this may be the start of an active run.
            self._active_runs.activate(subject.ref, delivery, subject.verb, fresh=True)
        else:
            self.seek_home(subject.ref, delivery, subject.verb)

    def _is_fresh(self, delivery: Delivery, verb: str) -> bool:
        """Return whether a command most likely is for a run that no worker has claimed, and this worker can perform."""
        first = verb == "start" and delivery.deliveries == 1 and WORKER_HEADER not in delivery.headers
        return first and not self._assignment.code_differs

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        self._tasks.start_soon(self._seek_home, ref, delivery, verb)

    async def _seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        try:
            await self._pass_on(ref, delivery, verb)
        except Exception:
            # One command must not end the worker.
            logger.exception("command could not be passed on", subject=delivery.subject)
            delivery.nak(CRASHED_RETRY_S)

    async def _pass_on(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        """Pass on a command for a run that is not here: it may be over, at another worker, or to be activated here."""
        try:
            last = await self._log.last(ref)
            claim = await self._log.last_of_type(ref, ev.RunClaimed.type) if last else None
            # A command may be passed on to a run that continues another one, and is refused after that.
            refused = await refusal_of_start(self._log, ref) if last is None else None
        except NoAnswer as error:
            logger.warning("command is waiting for the log", run=ref.run, error=str(error))
            delivery.nak(1.0)
            return
        if refused is not None:
            self.refuse(ref, verb, "run.unknown", "the start of the run was refused")
            delivery.ack()
            return
        if last is not None and last.event.type == ev.RunEnd.type:
            if verb in CONTINUED and await self._pass_to_successor(last, delivery, verb):
                return
            self.refuse(ref, verb, "run.finished", "the run has ended", last.event.definition)
            delivery.ack()
            return
        if last is not None and last.event.type == ev.RunQuarantined.type and verb != "kill":
            found = ev.payload_of(last.event)
            code = found.code if isinstance(found, ev.RunQuarantined) else LogUnreadable.CODE
            self.refuse(ref, verb, code, QUARANTINED, last.event.definition)
            delivery.ack()
            return
        worker = self._find_worker(last, claim, delivery)
        if worker and await self._assignment.know(worker, _read_claim(claim)[1]):
            # Another worker, which has waited too, may have claimed the run, or read its commands now.
            if reader := self._assignment.reader(ref):
                self._forward(reader, delivery, verb)
            else:
                await self._pass_on(ref, delivery, verb)
            return
        if worker in self._assignment.others():
            self._forward(worker, delivery, verb)
            return
        worker = "" if verb == "kill" or ref in self._active_runs else await self._code_home(ref)
        # Another command may have activated the run during the read.
        if ref in self._active_runs:
            self._active_runs.tell(ref, delivery, verb)
        elif worker:
            self._forward(worker, delivery, verb)
        else:
            self._active_runs.activate(ref, delivery, verb)

    async def _pass_to_successor(self, end: Recorded, delivery: Delivery, verb: str) -> bool:
        """Route a command for a run that has ended to the run that continues it; return whether there is one.

        If the ended run has recorded the command, this is a redelivery, which is only acknowledged.
        """
        if successor_of(end.event) is None:
            return False
        try:
            if not await self._has_recorded(end, delivery):
                header = header_of(delivery)
                if verb in ENDING:
                    await mark_stopped(self._log, end.ref, Stop(verb, delivery.data, header))
                to, _ = await find_newest_run(self._log, end.ref)
                if verb in ENDING:
                    await pass_on_stop(self._log, to, verb, delivery.data, header)
                else:
                    await pass_on(self._log, end.ref, to, verb, delivery.data, header)
        except (NoAnswer, Full) as error:
            logger.warning("command is waiting for the log", run=end.ref.run, error=str(error))
            delivery.nak(1.0)
            return True
        delivery.ack()
        return True

    async def _has_recorded(self, end: Recorded, delivery: Delivery) -> bool:
        """Return whether a run that has ended has an event which names a command as its cause (law 9)."""
        after = delivery.sequence
        while after < end.sequence:
            events = await self._log.read(end.ref, after=after, limit=EVENTS_AT_ONCE)
            if any(item.ref == end.ref and item.event.cause == delivery.sequence for item in events):
                return True
            after = events[-1].sequence if events else end.sequence
        return False

    async def _code_home(self, ref: RunRef) -> str:
        """Return the worker that has the code of a run which this one does not have; empty if this one may perform it.

        :raises NoAnswer: if the log does not answer
        """
        if not self._assignment.code_differs:
            return ""
        first = await self._log.last_of_type(ref, ev.RunAccepted.type)
        code = named_code(first.event) if first is not None and first.readable else None
        if code is None:
            return ""
        adopted = await self._log.last_of_type(ref, ev.RunAdopted.type)
        payload = ev.payload_of(adopted.event) if adopted is not None and adopted.readable else None
        digest = payload.digest if isinstance(payload, ev.RunAdopted) else code.digest
        return self._assignment.code_home(code.entry, digest)

    def _find_worker(self, last: Recorded | None, claim: Recorded | None, delivery: Delivery) -> str:
        """The worker that has a run, or that must perform it as long as it lives; empty for any worker."""
        if claim is None:
            return delivery.headers.get(WORKER_HEADER, "")
        claimed_by, _process = _read_claim(claim)
        resting = last is None or last.event.type == ev.RunParked.type
        return "" if resting and claimed_by not in self._assignment.guests() else claimed_by

    def _forward(self, worker: str, delivery: Delivery, verb: str) -> None:
        if verb in ("start", "alarm") and worker in self._assignment.leaving():
            # That worker will give up the run; check again when that may have happened.
            delivery.nak(LEAVING_RETRY_S)
            return
        self._outbox.send(self._log.subjects.worker(worker, "tell"), delivery.data, headers_of(delivery))

    def pass_to_newer(self, deliveries: Sequence[Delivery]) -> bool:
        worker = min(self._assignment.newer(), default="")
        for delivery in deliveries if worker else ():
            self._outbox.send(self._log.subjects.worker(worker, "tell"), delivery.data, headers_of(delivery))
        return bool(worker)

    def _parse_forwarded(self, message: Msg) -> Delivery | None:
        try:
            return delivery_of(message, self._outbox.send)
        except (KeyError, ValueError) as error:
            logger.error("message ignored: no worker has forwarded it", subject=message.subject, error=str(error))
            return None

    async def _take_forwarded(self, message: Msg) -> None:
        if (delivery := self._parse_forwarded(message)) is None:
            return
        try:
            subject = self._log.subjects.parse_command(delivery.subject)
        except ValueError as error:
            logger.error("message ignored: its subject is not a command's", subject=delivery.subject, error=str(error))
            return
        if subject.ref in self._active_runs:
            self._active_runs.tell(subject.ref, delivery, subject.verb)
        elif self._active_runs.closed:
            delivery.nak(LEAVING_RETRY_S)
        else:
            # By the log this worker has the run, but it is no longer here: it has parked or ended, or was given back.
            self.seek_home(subject.ref, delivery, subject.verb)

    async def _take_claim(self, message: Msg) -> None:
        """Check a claim of another worker: it may have taken a run from this one during a long effect.

        The log may have refused the claim that was published, so the log is read.
        """
        try:
            ref = self._log.subjects.parse_event(message.subject).ref
        except ValueError:
            return
        if (
            ref in self._active_runs
            and _read_claim(decode_recorded(message.subject, 0, ref, "", message.data))[0] != self._name
        ):
            self._tasks.start_soon(self._check_claim, ref)

    async def _check_claim(self, ref: RunRef) -> None:
        try:
            claim = await self._log.last_of_type(ref, ev.RunClaimed.type)
        except NoAnswer:
            # The next append fails if the run is lost.
            return
        if claim is not None:
            self._active_runs.lose(ref, claim.event)

    def refuse(self, ref: RunRef, verb: str, code: str, message: str, definition: str = "") -> None:
        """Publish that a command had no effect, because the run records no further events."""
        if verb not in WAKING:
            refused = ev.CommandRefused(verb=verb, code=code, message=message)
            self._outbox.send(self._log.subjects.live(ref, definition, refused.type), msgspec.json.encode(refused))


def _read_claim(claim: Recorded | None) -> tuple[str, str]:
    """Return the worker that a claim names, and its process; empty without a readable claim."""
    payload = ev.payload_of(claim.event) if claim is not None and claim.readable else None
    return (payload.worker, payload.process) if isinstance(payload, ev.RunClaimed) else ("", "")
