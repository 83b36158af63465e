"""The office of notices: reads the events that the rules are on, judges them, and has receivers told.

One process at a time holds it (`callboard.runtime.cluster.leader`). Every rule has a durable consumer of its own, which
is its checkpoint: a slow receiver keeps no other waiting, and no run. What has not waited long enough yet, and what a
receiver did not take, waits at the server. An event is acknowledged when its notice was taken: who dies before that
leaves it to be sent again, with the same id.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import structlog

from callboard.bus.log.port import NoAnswer, Recorded, recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery, Outbox, Puller, ensure_consumer
from callboard.features.notify.notice import Notice
from callboard.features.notify.notice_delivery import Receiver, ServiceFailed
from callboard.features.notify.rule_evaluation import Judge, Later, filters
from callboard.features.telemetry.event_consumer import until_caught_up
from callboard.lib.backoff import backoff_s
from callboard.runtime.cluster.leader import GRACE_S, holding, persistently
from callboard.runtime.settings.notify_settings import NotifyRule
from callboard.service.api.connection import Connection

logger = structlog.get_logger(__name__)

OFFICE = "notify"

IN_HAND_MAX = 512
IN_HAND_BYTES_MAX = 16 * 1024 * 1024
"""Events of one rule that are in memory at once, and their bytes; what is pulled at once comes on top."""

JUDGED_AT_ONCE = 2
"""Events that are judged side by side, of all rules: each may have a run read."""

IDLE_S = 7 * 24 * 3600.0
"""A rule that nobody has carried out for so long begins anew, with what comes from then on."""

RETRY_S = 5.0
RETRY_MAX_S = 3600.0
"""The pause behind a notice that was not taken, at first and at most."""

TRIES_MAX = 24
"""So often a notice is sent, within some 15 hours; then it is given up."""

Told = Counter[tuple[str, str]]
"""Notices by rule and what became of them: ``sent``, ``failed`` (it is tried again) or ``given_up``."""


def durable(name: str) -> str:
    """The consumer that is the checkpoint of a rule."""
    return f"notify-{name}"


class Office:
    """Tells receivers what the rules say. A `Leader`."""

    def __init__(self, connection: Connection, rules: Mapping[str, NotifyRule], env: Mapping[str, str]) -> None:
        self._connection = connection
        turns = anyio.CapacityLimiter(JUDGED_AT_ONCE)
        self._rules = {name: _Rule(connection, name, rule, env, turns) for name, rule in rules.items()}

    @property
    def told(self) -> Told:
        """What became of notices here."""
        return sum((rule.told for rule in self._rules.values()), Told())

    async def prepare(self) -> None:
        """Set the checkpoints of rules that are new."""
        for rule in self._rules.values():
            try:
                await rule.prepare()
            except NoAnswer as error:
                logger.warning("a rule of notices begins later", rule=rule.name, error=str(error))

    async def run(self, orphaned: bool) -> None:
        """Tell until cancelled."""
        async with anyio.create_task_group() as tasks:
            for rule in self._rules.values():
                tasks.start_soon(persistently, f"notify {rule.name}", rule.run)

    def hurry(self) -> None:
        for rule in self._rules.values():
            rule.hurry()

    async def finish(self) -> None:
        """Have what has happened so far told, if that goes quickly; what waits for something is left out."""
        with anyio.move_on_after(GRACE_S):
            for rule in self._rules.values():
                await rule.finish()


class _Rule:
    """One rule, as it is carried out."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        rule: NotifyRule,
        env: Mapping[str, str],
        turns: anyio.CapacityLimiter,
    ) -> None:
        self.name = name
        self.told = Told()
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
        """Carry the rule out until cancelled.

        :raises NoAnswer: if its checkpoint cannot be set
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
        """Tell the server that what is in hand is not lost."""
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
            # That is no matter of the notice: however long it takes, it is not given up.
            logger.warning("a notice waits for the log", rule=self.name, error=str(error))
            delivery.nak(backoff_s(delivery.deliveries, RETRY_S, RETRY_MAX_S))
        except Exception:
            # One event must not keep the others from being told.
            logger.exception("an event could not be judged", rule=self.name, subject=delivery.subject)
            self._try_again(delivery)
        finally:
            self._in_hand.pop(delivery.sequence, None)
            self._less.set()

    async def _found(self, delivery: Delivery) -> Notice | Later | None:
        """What is to be told of a message, or when it is to be looked at again; None: nothing.

        :raises NoAnswer: if the log does not answer
        """
        if (tenant := self._log.subjects.tenant_of_rejection(delivery.subject)) is not None:
            return self._judge.judge_refusal(tenant, delivery.sequence, delivery.stored, delivery.data)
        item = self._event(delivery)
        return await self._judge.judge(item, self._log.now()) if item is not None else None

    def _event(self, delivery: Delivery) -> Recorded | None:
        try:
            ref = self._log.subjects.parse_event(delivery.subject).ref
        except ValueError as error:
            logger.error("not an event's subject, passed over", subject=delivery.subject, error=str(error))
            return None
        item = recorded(delivery.subject, delivery.sequence, ref, "", delivery.data)
        return item if item.readable else None

    async def _tell(self, notice: Notice, delivery: Delivery) -> None:
        # Whoever gives the office up ends what is under way: it would be sent twice.
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)
        try:
            with scope:
                await self._receiver.tell(notice)
                self.told[self.name, "sent"] += 1
                delivery.ack()
        except ServiceFailed as failed:
            told = {"rule": self.name, "run": notice.run, "id": notice.id, "error": str(failed)}
            if self._try_again(delivery):
                logger.warning("a notice was not taken, and is sent again", **told)
            else:
                logger.error("a notice is given up", tries=delivery.deliveries, **told)
        finally:
            self._scopes.discard(scope)

    def _try_again(self, delivery: Delivery) -> bool:
        """Have an event delivered again later; give it up if that has been done often enough."""
        if delivery.deliveries >= TRIES_MAX:
            self.told[self.name, "given_up"] += 1
            delivery.ack()
            return False
        self.told[self.name, "failed"] += 1
        delivery.nak(backoff_s(delivery.deliveries, RETRY_S, RETRY_MAX_S))
        return True


@asynccontextmanager
async def telling(
    connection: Connection, rules: Mapping[str, NotifyRule], env: Mapping[str, str]
) -> AsyncGenerator[Callable[[], Told]]:
    """Tell of what happens for the length of the block, if there are rules; open it before any run can start.

    It is given what returns how many notices became what in this process.
    """
    whole = {name: rule for name, rule in rules.items() if rule.complete}
    if not whole:
        yield Told
        return
    office = Office(connection, whole, env)
    await office.prepare()
    holders = {f"{connection.log.subjects.prefix}.office.{OFFICE}": office}
    async with holding(connection.nc, holders, connection.log.store):
        yield lambda: office.told
        await office.finish()
