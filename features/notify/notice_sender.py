"""The sender of notices: reads the events that rules select, judges them, and sends the notices.

One process at a time runs it (`callboard.runtime.cluster.leader`). Every rule has a durable consumer, which is its
checkpoint: a slow receiver delays neither other rules nor runs. Events that have not waited long enough, and notices
that a receiver did not accept, wait at the server. An event is acknowledged after its notice was accepted: if the
process crashes before, the notice is sent again with the same id.
"""

from collections import Counter
from collections.abc import Mapping

import anyio
import structlog

from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded, decode_recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery, Outbox, Puller, ensure_consumer
from callboard.features.notify.notice import Notice
from callboard.features.notify.notice_delivery import Receiver, ServiceFailed
from callboard.features.notify.rule_evaluation import Judge, Later, filters
from callboard.features.telemetry.event_consumer import until_caught_up
from callboard.lib.backoff import backoff_s
from callboard.runtime.client.connection import Connection
from callboard.runtime.cluster.leader import GRACE_S, persistently
from callboard.runtime.settings.notify_settings import NotifyRule

logger = structlog.get_logger(__name__)

IN_HAND_MAX = 512
IN_HAND_BYTES_MAX = 16 * 1024 * 1024
"""Limits of the events of one rule in memory, and of their bytes; one batch may exceed them."""

JUDGED_AT_ONCE = 2
"""Events of all rules that are judged concurrently: each may require reading a run."""

IDLE_S = 7 * 24 * 3600.0
"""The checkpoint of a rule that no process has applied for this long is dropped; the rule restarts with new events."""

RETRY_S = 5.0
RETRY_MAX_S = 3600.0
"""The first and the longest pause after a notice that was not accepted."""

TRIES_MAX = 24
"""Attempts to send a notice, within some 15 hours, before it is given up."""


def durable(name: str) -> str:
    """Return the name of the consumer that is the checkpoint of a rule."""
    return f"notify-{name}"


class NoticeSender:
    """Sends the notices of all rules. A `Leader`."""

    def __init__(self, connection: Connection, rules: Mapping[str, NotifyRule], env: Mapping[str, str]) -> None:
        self._connection = connection
        turns = anyio.CapacityLimiter(JUDGED_AT_ONCE)
        self._rules = {name: _Rule(connection, name, rule, env, turns) for name, rule in rules.items()}

    @property
    def sending_results(self) -> Counter[tuple[str, str]]:
        """The notices of this process by rule and result: ``sent``, ``failed`` (to be tried again) or ``given_up``."""
        return sum((rule.results for rule in self._rules.values()), Counter[tuple[str, str]]())

    async def prepare(self) -> None:
        """Create the checkpoints of new rules."""
        for rule in self._rules.values():
            try:
                await rule.prepare()
            except NoAnswer as error:
                logger.warning(
                    "cannot create the checkpoint of a rule of notices yet", rule=rule.name, error=str(error)
                )

    async def run(self, orphaned: bool) -> None:
        """Send notices until cancelled."""
        async with anyio.create_task_group() as tasks:
            for rule in self._rules.values():
                tasks.start_soon(persistently, f"notify {rule.name}", rule.run)

    def hurry(self) -> None:
        for rule in self._rules.values():
            rule.hurry()

    async def finish(self) -> None:
        """Send the notices about all events so far, if that is quick; rules that wait are left out."""
        with anyio.move_on_after(GRACE_S):
            for rule in self._rules.values():
                await rule.finish()


class _Rule:
    """The execution of one rule."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        rule: NotifyRule,
        env: Mapping[str, str],
        turns: anyio.CapacityLimiter,
    ) -> None:
        self.name = name
        self.results = Counter[tuple[str, str]]()
        self._log: JetStreamLog = connection.log
        self._rule = rule
        self._ack_wait_s = connection.config.ack_wait_s
        self._judge = Judge(connection.log, name, rule, connection.config.http_url, turns)
        self._receiver = Receiver(name, rule, env)
        self._in_hand: dict[int, Delivery] = {}
        self._scopes: set[anyio.CancelScope] = set()
        self._less = anyio.Event()

    async def prepare(self) -> None:
        """:raises NoAnswer: if JetStream does not answer, or refuses"""
        log, wanted = self._log, filters(self._rule, self._log.subjects)
        await ensure_consumer(
            log.requests, log.stream, durable(self.name), wanted, self._ack_wait_s, begins="new", idle_s=IDLE_S
        )

    async def run(self) -> None:
        """Apply the rule until cancelled.

        :raises NoAnswer: if its checkpoint cannot be created
        """
        await self.prepare()
        outbox = Outbox(self._log.nc)
        self._in_hand.clear()
        try:
            async with anyio.create_task_group() as tasks:

                def take(delivery: Delivery) -> None:
                    if delivery.sequence not in self._in_hand:
                        self._in_hand[delivery.sequence] = delivery
                        tasks.start_soon(self._take, delivery)

                tasks.start_soon(outbox.run)
                tasks.start_soon(self._hold)
                puller = Puller(self._log.nc, self._log.stream, durable(self.name), take, outbox.send)
                await puller.run(self._room)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE_S):
                await outbox.flush()

    def hurry(self) -> None:
        for scope in self._scopes:
            scope.deadline = anyio.current_time() + GRACE_S

    async def finish(self) -> None:
        if self._rule.longer_than is None:
            await until_caught_up(self._log, durable(self.name))

    async def _room(self) -> None:
        while len(self._in_hand) >= IN_HAND_MAX or self._bytes >= IN_HAND_BYTES_MAX:
            self._less = anyio.Event()
            await self._less.wait()

    @property
    def _bytes(self) -> int:
        return sum(len(delivery.data) for delivery in self._in_hand.values())

    async def _hold(self) -> None:
        """Extend the server's deadline for the events in memory."""
        while True:
            await anyio.sleep(self._ack_wait_s / 3)
            for delivery in self._in_hand.values():
                delivery.hold()

    async def _take(self, delivery: Delivery) -> None:
        try:
            found = await self._found(delivery)
            if isinstance(found, Later):
                delivery.nak(max(0.0, (found.due - self._log.now()).total_seconds()))
            elif found is None:
                delivery.ack()
            else:
                await self._tell(found, delivery)
        except NoAnswer as error:
            # This is not a failure of the receiver: the notice is not given up, however long it takes.
            logger.warning("a notice waits for the log", rule=self.name, error=str(error))
            delivery.nak(backoff_s(delivery.deliveries, RETRY_S, RETRY_MAX_S))
        except Exception:
            # One event must not block the others.
            logger.exception("an event could not be judged", rule=self.name, subject=delivery.subject)
            self._try_again(delivery)
        finally:
            self._in_hand.pop(delivery.sequence, None)
            self._less.set()

    async def _found(self, delivery: Delivery) -> Notice | Later | None:
        """Return the notice about a message, or when to judge it again; None if there is no notice.

        :raises NoAnswer: if the log does not answer
        """
        if (tenant := self._log.subjects.tenant_of_rejection(delivery.subject)) is not None:
            return self._judge.judge_refusal(tenant, delivery.sequence, delivery.stored_time, delivery.data)
        item = self._event(delivery)
        return await self._judge.judge(item, self._log.now()) if item is not None else None

    def _event(self, delivery: Delivery) -> Recorded | None:
        try:
            ref = self._log.subjects.parse_event(delivery.subject).ref
        except ValueError as error:
            logger.error(
                "skipped a message that is not on an event's subject", subject=delivery.subject, error=str(error)
            )
            return None
        item = decode_recorded(delivery.subject, delivery.sequence, ref, "", delivery.data)
        return item if item.readable else None

    async def _tell(self, notice: Notice, delivery: Delivery) -> None:
        # A process that hands over the leadership lets running requests finish: otherwise they would be sent twice.
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)
        try:
            with scope:
                await self._receiver.tell(notice)
                self.results[self.name, "sent"] += 1
                delivery.ack()
        except ServiceFailed as failed:
            told = {"rule": self.name, "run": notice.run, "id": notice.id, "error": str(failed)}
            if self._try_again(delivery):
                logger.warning("a notice was not accepted, and is sent again", **told)
            else:
                logger.error("a notice is given up", tries=delivery.deliveries, **told)
        finally:
            self._scopes.discard(scope)

    def _try_again(self, delivery: Delivery) -> bool:
        """Have an event delivered again later; give it up after the last attempt and return False."""
        if delivery.deliveries >= TRIES_MAX:
            self.results[self.name, "given_up"] += 1
            delivery.ack()
            return False
        self.results[self.name, "failed"] += 1
        delivery.nak(backoff_s(delivery.deliveries, RETRY_S, RETRY_MAX_S))
        return True
